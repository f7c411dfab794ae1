import type { components } from "./schema";

type Schemas = components["schemas"];
export type RuntimeWorkload = Schemas["RuntimeWorkload"];
export type RuntimeWorkloadEntry = Schemas["RuntimeWorkloadEntry"];
export type InputField = Schemas["InputField"];
export type OutputDisplay = Schemas["OutputDisplay"];
export type PresentationMode = Schemas["PresentationMode"];
export type ExecutionResult = Schemas["ExecutionResult"];
export type QueuedExecution = Schemas["QueuedExecution"];
export type Execution = Schemas["Execution"];
export type Citation = Schemas["Citation"];
export type Session = Schemas["Session"];
export type FlatEvidence = Schemas["FlatEvidenceView"];
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
