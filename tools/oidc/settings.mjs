// The settings of a run, which `cargo xtask sign-in` passes in the environment.
export const required = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run \`cargo xtask sign-in\``);
  return value;
};

/** The address of Fairway, which is also the audience of its access tokens. */
export const SERVER = required("OIDC_SERVER");
/** The identity provider. Its host name differs from the server's, so browsers see two sites. */
export const ISSUER = required("OIDC_ISSUER");
/** The program of the command line. */
export const FAIRWAY = required("OIDC_FAIRWAY");
/** The secrets of the clients. Basic authentication encodes their special characters. */
export const SECRETS = { "fairway-portal": required("PORTAL_CLIENT_SECRET"), ci: "ci:secret+/%", assistant: "assistant secret=&" };
/** The workspace that every server has. */
export const WORKSPACE = "00000000-0000-7000-8000-000000000003";
