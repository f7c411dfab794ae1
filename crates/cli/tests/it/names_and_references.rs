//! Names in commands: aliases of nouns, short references to releases, and suggestions for unknown names.

use crate::{
    Terminal,
    sample_resources::{BOUND, create_contents, create_workload},
};
use fairway_testkit::TestApp;
use serde_json::Value;

fn draft(ada: &Terminal, environment: &str) -> String {
    let release = ada.run_json(&[&["releases", "create", "sorter", "--env", environment], &BOUND[..]].concat());
    release["release_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn accepts_singular_and_plural_nouns() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, _) = create_contents(&app);
    for (singular, plural) in [
        ("asset", "assets"),
        ("flow", "flows"),
        ("release", "releases"),
        ("workload", "workloads"),
        ("execution", "executions"),
        ("review", "reviews"),
        ("role", "roles"),
        ("role-binding", "role-bindings"),
    ] {
        assert_eq!(ada.run_json(&[singular, "list"]), ada.run_json(&[plural, "list"]), "{singular}");
    }
    let help = ada.run_ok(&["--help"]);
    assert!(!help.contains("  asset ") && help.contains("  assets "), "{help}");
}

#[tokio::test]
async fn finds_releases_by_short_references() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, grace) = create_contents(&app);
    let find =
        |reference: &str| ada.run_json(&["release", "show", reference])["release_id"].as_str().unwrap().to_owned();
    let refused = ada.run(&["releases", "show", "latest"]);
    assert!(refused.code == 1 && refused.err.contains("the workspace has no release"), "{}", refused.err);
    let (first, second) = (draft(&ada, "dev"), draft(&ada, "dev"));
    let other = draft(&ada, "staging");
    assert_eq!(find("sorter@dev"), second);
    assert_eq!(find("latest"), other);
    assert_eq!(find(&first), first);
    ada.run_ok(&["releases", "retire", &second]);
    assert_eq!(find("sorter@dev"), first, "a retired release does not count");
    // The releases were created within a short time. Their identifiers have a common prefix, which is ambiguous as a
    // reference.
    let common_length = first.bytes().zip(second.bytes()).take_while(|(one, other)| one == other).count();
    assert!(common_length >= 4, "{first} {second}");
    let ambiguous = ada.run(&["releases", "show", &first[..4]]);
    assert!(ambiguous.code == 1 && ambiguous.err.contains("is the beginning of 3 releases"), "{}", ambiguous.err);
    assert!(
        ambiguous.err.contains(&second) && ambiguous.err.contains("dev, retired, by user:ada"),
        "{}",
        ambiguous.err
    );
    assert_eq!(find(&first[..35].to_uppercase()), first, "a unique beginning");
    for (reference, expected) in [
        ("sorter", "did you mean `sorter@ENVIRONMENT`?"),
        ("sorter@prod", "workload `sorter` has no release in environment `prod`"),
        ("sortr@dev", "did you mean `sorter`?"),
        ("ffffffff", "no visible release fits `ffffffff`"),
    ] {
        let output = ada.run(&["releases", "show", reference]);
        assert!(output.code == 1 && output.err.contains(expected), "{reference}: {}", output.err);
    }
    ada.run_ok(&["releases", "retire", "sorter@dev"]);
    let show = ada.run(&["releases", "show", "sorter@dev"]);
    assert!(show.err.contains("are superseded or retired") && show.err.contains("`sorter@staging`"), "{}", show.err);
    // Every command accepts references. A command that changes something suggests the next command.
    let submitted = ada.run(&["releases", "submit", "sorter@staging"]);
    assert!(
        submitted.code == 0 && submitted.err.contains(&format!("fairway releases approve {other}")),
        "{}",
        submitted.err
    );
    grace.run_ok(&["releases", "approve", "sorter@staging"]);
    let activated = grace.run(&["releases", "activate", "latest"]);
    let run = "next: fairway run sorter --env staging --input text=VALUE\n";
    assert!(activated.code == 0 && activated.err.ends_with(run), "{}", activated.err);
    let active = ada.run(&["releases", "show", "sorter@staging"]);
    assert!(active.out.contains("advice: no rollback (0.0 % of the last 0 runs failed"), "{}", active.out);
    let advice = ada.run_json(&["releases", "show", "sorter@staging"]);
    assert_eq!(advice["rollback_recommendation"]["recommended"], false);
    // Commands for the serving release find it although a newer draft exists.
    let pending = draft(&ada, "staging");
    assert_eq!(find("sorter@staging"), pending);
    let rollback = |args: &[&str]| grace.run(&[&["releases", "rollback", "--reason", "Too curt."], args].concat());
    for args in [&["sorter@staging"][..], &["sorter@staging", "--lane", "guided"][..]] {
        let refused = rollback(args);
        assert!(refused.code == 1 && refused.err.contains("no_previous_release"), "{args:?}: {}", refused.err);
    }
    let advanced = grace.run(&["releases", "advance", "sorter@staging"]);
    assert!(advanced.err.contains("rollout_not_in_progress"), "{}", advanced.err);
    let refused = rollback(&[&pending]);
    assert!(refused.err.contains(&format!("release {pending} is draft, and only the release that serves")));
    assert!(refused.err.contains("next: fairway releases rollback sorter@staging --reason WHY"), "{}", refused.err);
    let none = rollback(&["sorter@dev"]);
    assert!(none.code == 1 && none.err.contains("no release of `sorter` serves environment `dev`"), "{}", none.err);
}

#[tokio::test]
async fn suggests_names_and_values() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, _) = create_contents(&app);
    for (args, code, expected) in [
        (vec!["workloads", "show", "sortre"], 1, "did you mean `sorter`?"),
        (vec!["assets", "show", "sort-promt"], 1, "did you mean `sort-prompt`?"),
        (vec!["assets", "content", "sort-prompt@v11"], 1, "did you mean `v1`?"),
        (vec!["assets", "list", "--kind", "prompt"], 2, "prompt_template"),
        (vec!["releases", "list", "--state", "activ"], 2, "'active'"),
        (vec!["executions", "list", "--status", "finished"], 2, "completed"),
        (vec!["executions", "show", "latest"], 1, "you can see no run"),
        (vec!["executions", "explain", "ffff"], 1, "the unique beginning of its id, or `latest`"),
        (vec!["role-bindings", "create", "user:x", "aprover"], 2, "'approver'"),
        (vec!["releases", "shw", "x"], 2, "did you mean `fairway releases show`?"),
        (vec!["releases", "lst"], 2, "did you mean `fairway releases list`?"),
        (vec!["workloads", "list", "--workspace", "defalt"], 2, "did you mean `default`?"),
    ] {
        let output = ada.run(&args);
        assert!(output.code == code && output.err.contains(expected), "{args:?} {}: {}", output.code, output.err);
    }
    // A given name may be long, and may contain characters that a terminal would interpret.
    let long = format!("sorter\u{1b}[31m{}", "x".repeat(10_000));
    let output = ada.run(&["workloads", "show", &long]);
    assert!(output.code == 1 && output.err.len() < 2_000 && !output.err.contains('\u{1b}'), "{}", output.err);
}

#[tokio::test]
async fn run_refusals_name_similar_slugs_environments_and_the_next_command() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    app.active_workload("letter-box").await;
    let ada = Terminal::connected(&app).acting_as("user:ada");
    let misspelt = ada.run(&["run", "letter-bix", "--env", "dev"]);
    let expected = "fairway: no workload `letter-bix` is visible to you; did you mean `letter-box`?\n\
                    next: fairway run letter-box --env dev\n";
    assert_eq!((misspelt.code, misspelt.err.as_str()), (1, expected));
    let refused = ada.run(&["run", "letter-box", "--env", "production", "--no-wait"]);
    assert!(
        refused.code == 1
            && refused.err.contains("no release of `letter-box` is active in environment `production`")
            && refused.err.contains("\n  active in: dev\n")
            && refused.err.ends_with("next: fairway run letter-box --env dev\n"),
        "{}",
        refused.err
    );
    let json = ada.run(&["run", "letter-bix", "--env", "dev", "-o", "json"]);
    let json: Value = serde_json::from_str(json.err.lines().last().unwrap()).unwrap();
    assert_eq!(json["detail"]["candidates"][0]["name"], "letter-box");
    assert_eq!(json["detail"]["next_command"], "fairway run letter-box --env dev");
    // A caller that may not see the workload gets no suggestion, whether its slug is correct or similar.
    ada.run_ok(&["role-bindings", "create", "user:bea", "runtime_user", "--workload", "sorter"]);
    let bea = Terminal::connected(&app).acting_as("user:bea");
    for slug in ["letter-bix", "letter-box"] {
        let refused = bea.run(&["run", slug, "--env", "dev"]);
        let expected = format!("fairway: no workload `{slug}` is visible to you\nnext: fairway workloads list\n");
        assert_eq!((refused.code, refused.err), (1, expected));
    }
    let refused = bea.run(&["run", "sortr", "--env", "dev"]);
    assert!(refused.err.contains("did you mean `sorter`?"), "{}", refused.err);
}
