//! The differences between the plan of a use case and the plan that it refines.

use super::bundle::BundlePlan;
use serde_json::{Value, json};

/// A member of the plan that differs.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanChange {
    /// The path of the member, such as `name` or `flow.steps.answer`; `answer` is the identifier of a step.
    pub path: String,
    /// The value in the earlier plan; `None` if the later plan added the member.
    pub before: Option<Value>,
    /// The value in the later plan; `None` if the later plan omits the member.
    pub after: Option<Value>,
}

/// The differences between two plans.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanChanges {
    /// The members that differ, in the order of the plan.
    pub changes: Vec<PlanChange>,
    /// The identifiers of the steps that are identical in both plans.
    pub unchanged_steps: Vec<String>,
}

/// Compares two plans. Steps are compared by their identifiers, so a step that was only moved counts as unchanged.
#[must_use]
pub fn plan_changes(before: &BundlePlan, after: &BundlePlan) -> PlanChanges {
    let (old, new) = (before.to_document(), after.to_document());
    let mut diff = PlanChanges::default();
    for member in ["name", "summary"] {
        diff.compare(member, old.get(member), new.get(member));
    }
    diff.compare_flows(old.get("flow"), new.get("flow"));
    diff.compare("prompt_template", old.get("prompt_template"), new.get("prompt_template"));
    for member in ["model_policy_ref", "connections"] {
        diff.compare(member, old.get(member), new.get(member));
    }
    diff
}

impl PlanChanges {
    fn compare(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        if before != after {
            let (before, after) = (before.cloned(), after.cloned());
            self.changes.push(PlanChange { path: path.to_owned(), before, after });
        }
    }

    fn compare_flows(&mut self, before: Option<&Value>, after: Option<&Value>) {
        let names = |flow: Option<&Value>| {
            let members = flow.and_then(Value::as_object).into_iter().flatten();
            members.map(|(name, _)| name.clone()).filter(|name| name != "steps").collect::<Vec<_>>()
        };
        let member = |flow: Option<&'_ Value>, name: &str| flow.and_then(|flow| flow.get(name)).cloned();
        let mut all_names = names(before);
        all_names.extend(names(after).into_iter().filter(|name| member(before, name).is_none()));
        for name in all_names {
            self.compare(&format!("flow.{name}"), member(before, &name).as_ref(), member(after, &name).as_ref());
        }
        self.compare_steps(&steps(before), &steps(after));
    }

    fn compare_steps(&mut self, before: &[(String, &Value)], after: &[(String, &Value)]) {
        let find = |steps: &[(String, &Value)], id: &str| {
            steps.iter().find(|(other, _)| other == id).map(|(_, step)| (*step).clone())
        };
        let shared = |steps: &[(String, &Value)], others: &[(String, &Value)]| {
            let ids = steps.iter().map(|(id, _)| id.clone());
            ids.filter(|id| others.iter().any(|(other, _)| other == id)).collect::<Vec<_>>()
        };
        let (old_order, new_order) = (shared(before, after), shared(after, before));
        if old_order != new_order {
            self.compare("flow.steps", Some(&json!(old_order)), Some(&json!(new_order)));
        }
        for (id, step) in after {
            let earlier = find(before, id);
            if earlier.as_ref() == Some(*step) {
                self.unchanged_steps.push(id.clone());
            } else {
                self.compare(&format!("flow.steps.{id}"), earlier.as_ref(), Some(step));
            }
        }
        for (id, step) in before.iter().filter(|(id, _)| find(after, id).is_none()) {
            self.compare(&format!("flow.steps.{id}"), Some(step), None);
        }
    }
}

/// The steps of a flow, each with its identifier.
fn steps(flow: Option<&Value>) -> Vec<(String, &Value)> {
    let steps = flow.and_then(|flow| flow.get("steps")).and_then(Value::as_array).into_iter().flatten();
    steps.filter_map(|step| Some((step.get("id")?.as_str()?.to_owned(), step))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::use_case::bundle::tests::plan;

    fn changed(pointer: &str, value: Value) -> PlanChanges {
        let before = BundlePlan::parse(&plan()).unwrap();
        let mut document = plan();
        *document.pointer_mut(pointer).unwrap() = value;
        let after = BundlePlan::parse(&document).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        plan_changes(&before, &after)
    }

    fn paths(diff: &PlanChanges) -> Vec<&str> {
        diff.changes.iter().map(|change| change.path.as_str()).collect()
    }

    #[test]
    fn equal_plans_have_no_changes() {
        let parsed_plan = BundlePlan::parse(&plan()).unwrap();
        let diff = plan_changes(&parsed_plan, &parsed_plan);
        assert_eq!(diff.changes, []);
        let ids: Vec<String> = parsed_plan.flow_steps().iter().map(|(id, _)| id.clone()).collect();
        assert!(!ids.is_empty());
        assert_eq!(diff.unchanged_steps, ids);
    }

    #[test]
    fn names_each_member_that_differs() {
        let template = plan()["prompt_template"]["template"].as_str().unwrap().to_owned();
        for (pointer, value, path) in [
            ("/name", json!("Another name"), "name"),
            ("/summary", json!("Another summary."), "summary"),
            ("/prompt_template/template", json!(format!("{template} Be brief.")), "prompt_template"),
            ("/model_policy_ref", json!("another-model"), "model_policy_ref"),
            ("/connections", json!(["another"]), "connections"),
        ] {
            let diff = changed(pointer, value.clone());
            assert_eq!(paths(&diff), [path]);
            assert_eq!(diff.unchanged_steps.len(), plan()["flow"]["steps"].as_array().unwrap().len());
            assert!(diff.changes[0].after.as_ref().unwrap().to_string().contains(value.to_string().trim_matches('"')));
        }
    }

    #[test]
    fn names_changed_added_and_removed_steps() {
        let mut steps = plan()["flow"]["steps"].as_array().unwrap().clone();
        let last = steps.last().unwrap()["id"].as_str().unwrap().to_owned();
        let first = steps[0]["id"].as_str().unwrap().to_owned();
        assert_ne!(first, last);
        steps[0]["inputs"]["tone"] = json!("friendly");
        let diff = changed("/flow/steps", json!(steps));
        assert_eq!(paths(&diff), [format!("flow.steps.{first}")]);
        assert!(diff.unchanged_steps.contains(&last) && !diff.unchanged_steps.contains(&first));
        let (before, after) = (json!({ "steps": [{ "id": "a" }, { "id": "b" }] }), json!({ "steps": [{ "id": "c" }] }));
        let mut diff = PlanChanges::default();
        diff.compare_flows(Some(&before), Some(&after));
        assert_eq!(paths(&diff), ["flow.steps.c", "flow.steps.a", "flow.steps.b"]);
        assert!(diff.changes[0].before.is_none() && diff.changes[1].after.is_none());
        let mut diff = PlanChanges::default();
        diff.compare_flows(Some(&before), Some(&json!({ "entry_step": "b", "steps": [{ "id": "b" }, { "id": "a" }] })));
        assert_eq!(paths(&diff), ["flow.entry_step", "flow.steps"]);
        assert_eq!(diff.unchanged_steps, ["b", "a"]);
    }
}
