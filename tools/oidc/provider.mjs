// An OpenID Connect provider with two people, a portal, a command line and two services. It listens on loopback.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ISSUER, required, SECRETS, SERVER } from "./settings.mjs";

const { Provider } = await import(pathToFileURL(join(required("OIDC_MODULES"), "oidc-provider/lib/index.js")));

/** The claims of each person, by the name that the person enters at the provider. */
export const PEOPLE = {
  ada: { preferred_username: "Ada", name: "Ada Lovelace", email: "ada@people.example", email_verified: true, groups: ["platform"] },
  bob: { preferred_username: "bob", name: "Bob <Desk>", email: "bob@people.example", email_verified: true, groups: ["support", "all-staff"] },
};
/** The claims of services, by client identifier. */
const SERVICE_CLAIMS = { ci: { groups: ["pipelines"] } };
/** An audience that the provider also issues tokens for, and that Fairway must refuse. */
export const OTHER_AUDIENCE = "https://other.example/api";

const key = (type, options, extra) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: "jwk" }),
  use: "sig",
  ...extra,
});
const DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code";
const service = (client_id) => ({ client_id, client_secret: SECRETS[client_id], grant_types: ["client_credentials"], redirect_uris: [], response_types: [] });

const configuration = {
  jwks: {
    keys: [key("rsa", { modulusLength: 2048 }, { alg: "RS256", kid: "id" }), key("ec", { namedCurve: "P-256" }, { alg: "ES256", kid: "access" })],
  },
  cookies: { keys: ["only for tests"] },
  clients: [
    {
      client_id: "fairway-portal",
      client_secret: SECRETS["fairway-portal"],
      redirect_uris: [`${SERVER}/sign-in/callback`],
      post_logout_redirect_uris: [`${SERVER}/sign-in?signed_out=1`],
      grant_types: ["authorization_code", "refresh_token"],
      backchannel_logout_uri: `${SERVER}/sign-out/backchannel`,
      backchannel_logout_session_required: true,
    },
    {
      client_id: "fairway-cli",
      application_type: "native",
      token_endpoint_auth_method: "none",
      grant_types: [DEVICE_CODE, "refresh_token"],
      redirect_uris: [],
      response_types: [],
    },
    service("ci"),
    service("assistant"),
  ],
  claims: { openid: ["sub", "sid"], profile: ["name", "preferred_username", "groups"], email: ["email", "email_verified"] },
  async findAccount(_context, id) {
    const person = PEOPLE[id];
    return person && { accountId: id, claims: async () => ({ sub: id, ...person }) };
  },
  // Access tokens are JWTs with the claims that Fairway maps.
  extraTokenClaims: async (_context, token) => {
    const { preferred_username, groups } = PEOPLE[token.accountId] ?? {};
    return preferred_username ? { preferred_username, groups } : SERVICE_CLAIMS[token.clientId];
  },
  issueRefreshToken: async (_context, client) => client.grantTypeAllowed("refresh_token"),
  features: {
    backchannelLogout: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      // The portal receives an access token for the userinfo endpoint, because it calls Fairway with a session cookie.
      defaultResource: async (_context, client) => (client.clientId === "fairway-portal" ? undefined : SERVER),
      useGrantedResource: async () => true,
      getResourceServerInfo: async (_context, resource) => {
        if (resource !== SERVER && resource !== OTHER_AUDIENCE) throw new Error(`unknown resource ${resource}`);
        return { audience: resource, scope: "openid profile email", accessTokenFormat: "jwt", accessTokenTTL: 600, jwt: { sign: { alg: "ES256" } } };
      },
    },
  },
  enabledJWA: { idTokenSigningAlgValues: ["RS256", "ES256"] },
  // Removes the library's request timeout, which slow machines would exceed, and its refusal of loopback addresses.
  fetch: (url, options) => fetch(url, { ...options, signal: undefined, dispatcher: undefined }),
};

const provider = new Provider(ISSUER, configuration);
/** Messages of the provider about failed requests and logouts. */
export const reports = [];
for (const event of ["server_error", "authorization.error", "grant.error", "backchannel.error", "end_session.error"]) {
  provider.on(event, (_context, error) => reports.push(`${event}: ${error?.error_detail ?? error?.error_description ?? error} ${error?.cause ?? ''}`));
}
/** Number of back-channel logouts that Fairway confirmed. */
export let confirmedLogouts = 0;
provider.on("backchannel.success", () => (confirmedLogouts += 1));

const handle = provider.callback();
let listener;

export async function start() {
  listener = createServer(handle);
  await new Promise((resolve, reject) => {
    listener.once("error", reject);
    listener.listen(new URL(ISSUER).port, "localhost", resolve);
  });
}

/** Stops the provider, and retains its keys and sign-ins for the next start. */
export async function stop() {
  if (!listener) return;
  listener.closeAllConnections();
  await new Promise((resolve) => listener.close(resolve));
  listener = undefined;
}
