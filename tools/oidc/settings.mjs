// The settings of a test run, which `cargo xtask sign-in` passes as environment variables.
export const required = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run \`cargo xtask sign-in\``);
  return value;
};

/** The address of Fairway, which is also the audience of its access tokens. */
export const SERVER = required("OIDC_SERVER");
/**
 * The address of the identity provider. Its host name differs from the server's, so that browsers
 * treat them as two sites.
 */
export const ISSUER = required("OIDC_ISSUER");
/** The path of the executable `fairway`. */
export const FAIRWAY = required("OIDC_FAIRWAY");
/** The secrets of the OAuth clients. Their special characters test the encoding of basic authentication. */
export const SECRETS = { "fairway-portal": required("PORTAL_CLIENT_SECRET"), ci: "ci:secret+/%", assistant: "assistant secret=&" };
/** The default workspace, which every server has. */
export const WORKSPACE = "00000000-0000-7000-8000-000000000003";
