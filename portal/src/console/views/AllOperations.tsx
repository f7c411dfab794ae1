import { useState } from "react";
import { Problem } from "../../api/problem";
import { accessPath, useConsole, type Scope } from "../core/console";
import type { Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { Tag } from "../ui/basics";
import { Table } from "../ui/Table";
import { OPERATIONS } from "./operations";

/** Maximum number of concurrent requests. */
const BESIDE = 6;

interface Answer {
  operation: string;
  answer: Schemas["AccessExplanation"];
}

/** Shows for every operation whether a person may perform it in a scope, by one request for each operation. */
export function AllOperations({ person, scope }: { person: string; scope: Scope }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { client, session } = useConsole();
  const [answers, setAnswers] = useState<Answer[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isAsking, setAsking] = useState(false);
  const ask = async () => {
    setAsking(true);
    setProblem(null);
    const waiting: string[] = [...OPERATIONS];
    const answers: Answer[] = [];
    const worker = async () => {
      for (let operation = waiting.shift(); operation !== undefined; operation = waiting.shift()) {
        answers.push({ operation, answer: await client.get(accessPath(operation, scope, person === session.actor ? undefined : person)) });
      }
    };
    try {
      await Promise.all(Array.from({ length: BESIDE }, worker));
      setAnswers(answers.sort((left, right) => (left.operation < right.operation ? -1 : 1)));
    } catch (cause) {
      waiting.length = 0;
      if (cause instanceof Problem) setProblem(cause);
      else throw cause;
    } finally {
      setAsking(false);
    }
  };
  const allowed = answers?.filter(({ answer }) => answer.allowed) ?? [];
  return (
    <>
      <div className="buttons">
        <button type="button" className="plain" disabled={isAsking} onClick={() => void ask()}>
          {isAsking ? text("sending") : text("can_all", { name: person })}
        </button>
      </div>
      {problem && <ProblemNotice problem={problem} />}
      {answers && (
        <>
          <p role="status" data-testid="can-all">
            {text("can_all_count", { name: person, count: allowed.length, total: answers.length })}
          </p>
          <Table
            label={text("can_all_title")}
            rows={answers}
            keyOf={({ operation }) => operation}
            columns={[
              { name: text("operation"), render: ({ operation }) => <code>{operation}</code> },
              { name: text("decision"), render: ({ answer }) => <Tag value={answer.allowed ? "allow" : "deny"} /> },
              { name: text("permissions"), render: ({ answer }) => answer.permission ?? "–" },
              { name: text("role"), render: ({ answer }) => [...new Set(answer.by.map(({ role }) => valueText(role)))].join(", ") },
            ]}
          />
        </>
      )}
    </>
  );
}
