import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { apiPath } from "../../api/paths";
import { Problem } from "../../api/problem";
import { readEvents, type StreamEvent } from "../../api/events";
import { useConsole } from "../core/console";
import type { Execution } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Empty, Failed, Section } from "../ui/basics";
import { Table } from "../ui/Table";
import { lineOf } from "./timeline";

/** Minimum interval between renderings in milliseconds, because events arrive in bursts. */
const DRAW_MS = 100;

/** The steps of a run with their durations, and its events as they arrive. */
export function Timeline({ run }: { run: Execution }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { events, problem, isOpen } = useEvents(run.execution_id);
  const longest = Math.max(1, ...(run.steps ?? []).map((step) => step.duration_us));
  return (
    <>
      <Section title={text("steps")}>
        <Table
          label={text("steps")}
          rows={run.steps ?? []}
          keyOf={(step) => step.step_id}
          empty={<Empty>{text("steps_empty")}</Empty>}
          columns={[
            { name: text("step"), render: (step) => step.step_id },
            { name: text("kind"), render: (step) => valueText(step.step_type) },
            {
              name: text("took"),
              render: (step) => (
                <>
                  <meter className="meter" aria-hidden min={0} max={longest} value={step.duration_us} /> {(step.duration_us / 1_000).toFixed(1)} ms
                </>
              ),
            },
            { name: text("error_code"), render: (step) => (step.error_code ? <span className="bad">{step.error_code}</span> : "") },
          ]}
        />
      </Section>
      <Section title={text("events")}>
        {problem && <Failed problem={problem} />}
        <p role="status" className="hint">
          {text(isOpen ? "events_open" : "events_count", { count: events.length })}
        </p>
        {events.length > 0 && <EventList events={events} />}
      </Section>
    </>
  );
}

function EventList({ events }: { events: readonly StreamEvent[] }) {
  const text = useConsoleText();
  const frame = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: events.length, getScrollElement: () => frame.current, estimateSize: () => 32, overscan: 20 });
  return (
    <div ref={frame} className="frame frame-tall" tabIndex={0} role="region" aria-label={text("events")}>
      <ol className="events" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const event = events[item.index];
          return (
            event && (
              <li key={item.key} data-index={item.index} ref={virtual.measureElement} value={item.index + 1} style={{ transform: `translateY(${item.start}px)` }}>
                <code>{event.event}</code> {lineOf(event.data)}
              </li>
            )
          );
        })}
      </ol>
    </div>
  );
}

/** Reads the events of a run. After a lost connection, the stream resumes after the last event. */
function useEvents(execution: string) {
  const { client } = useConsole();
  const [events, setEvents] = useState<StreamEvent[]>([]);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isOpen, setOpen] = useState(true);
  useEffect(() => {
    const abort = new AbortController();
    const received: StreamEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | null = null;
    const draw = () => {
      timer = null;
      setEvents([...received]);
    };
    const read = async () => {
      for (let attempt = 0; attempt < 20 && !abort.signal.aborted; attempt += 1) {
        try {
          const lastEventId = received.at(-1)?.id;
          const path = apiPath("/v1/executions/{execution_id}/events", { execution_id: execution });
          const response = await client.send(path, { accept: "text/event-stream", headers: { "Last-Event-ID": lastEventId }, signal: abort.signal });
          if (response.status === 204) break;
          await readEvents(response, (event) => {
            received.push(event);
            timer ??= setTimeout(draw, DRAW_MS);
          });
          if (/^execution\.(completed|failed|denied|cancelled|unknown)/.test(received.at(-1)?.event ?? "")) break;
        } catch (cause) {
          if (abort.signal.aborted) return;
          if (cause instanceof Problem && !cause.isTemporary) {
            setProblem(cause);
            break;
          }
        }
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      }
      if (!abort.signal.aborted) {
        draw();
        setOpen(false);
      }
    };
    void read();
    return () => {
      abort.abort();
      if (timer) clearTimeout(timer);
    };
  }, [client, execution]);
  return { events, problem, isOpen };
}
