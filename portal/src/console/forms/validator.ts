import { Validator, type Schema } from "@cfworker/json-schema";
import type { RJSFSchema, ValidatorType } from "@rjsf/utils";

/**
 * Tells the form library which alternative of a union matches a value. It interprets the schema, because the page's
 * content security policy forbids the generated code of other validators. It reports no errors, because the server
 * checks contents.
 */
export const validator: ValidatorType<unknown, RJSFSchema> = {
  isValid(schema, value, root) {
    const schemaWithDefinitions = { ...schema, $defs: { ...(root.$defs as object | undefined), ...(schema.$defs as object | undefined) } };
    try {
      return new Validator(schemaWithDefinitions as Schema, "2020-12", true).validate(value ?? null).valid;
    } catch {
      return false;
    }
  },
  validateFormData: () => ({ errors: [], errorSchema: {} }),
  rawValidation: () => ({}),
};
