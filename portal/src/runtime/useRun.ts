import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Client } from "../api/client";
import { RunFollower, type RunRequest, type RunState } from "./run";
import { TicketStore } from "./lastRuns";

export interface RunControl {
  state: RunState;
  start: (request: RunRequest) => void;
  cancel: () => void;
  reset: () => void;
}

/** The run of a page. Starts and follows a run, and restores the last run after a reload. */
export function useRun(client: Client, slug: string, isGuest: boolean): RunControl {
  const [state, setState] = useState<RunState>({ phase: "idle" });
  const follower = useRef<RunFollower | null>(null);
  const tickets = useMemo(() => new TicketStore(client, slug), [client, slug]);

  const follow = useCallback(() => {
    follower.current?.leave();
    const next = new RunFollower(client, setState, (ticket) => tickets.save(ticket, isGuest));
    follower.current = next;
    return next;
  }, [client, tickets, isGuest]);

  useEffect(() => {
    const ticket = tickets.load();
    setState({ phase: "idle" });
    if (ticket) void follow().resume(ticket);
    return () => follower.current?.leave();
  }, [tickets, follow]);

  return {
    state,
    start: useCallback((request) => void follow().start(request), [follow]),
    cancel: useCallback(() => void follower.current?.cancel(), []),
    reset: useCallback(() => {
      follower.current?.leave();
      tickets.clear();
      setState({ phase: "idle" });
    }, [tickets]),
  };
}
