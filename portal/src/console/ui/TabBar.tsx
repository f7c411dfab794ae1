import { Tabs } from "@mantine/core";
import type { ReactNode } from "react";
import { useAddress } from "../core/useAddress";

/** Tabs whose selection is stored in the address. Only the selected tab loads its data. */
export function TabBar({ tabs, label }: { label: string; tabs: readonly { value: string; label: string; content: () => ReactNode }[] }) {
  const [search, change] = useAddress();
  const first = tabs[0]?.value ?? "";
  const chosen = tabs.some(({ value }) => value === search["tab"]) ? (search["tab"] ?? first) : first;
  return (
    <Tabs value={chosen} onChange={(value) => change({ tab: value === first ? "" : (value ?? "") })} keepMounted={false}>
      <Tabs.List aria-label={label}>
        {tabs.map((tab) => (
          <Tabs.Tab key={tab.value} value={tab.value}>
            {tab.label}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      {tabs.map((tab) => (
        <Tabs.Panel key={tab.value} value={tab.value} className="panel">
          {tab.value === chosen && tab.content()}
        </Tabs.Panel>
      ))}
    </Tabs>
  );
}
