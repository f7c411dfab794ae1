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
    for (one, many) in [
        ("asset", "assets"),
        ("flow", "flows"),
        ("release", "releases"),
        ("workload", "workloads"),
        ("execution", "executions"),
        ("review", "reviews"),
        ("role", "roles"),
        ("role-binding", "role-bindings"),
    ] {
        assert_eq!(ada.run_json(&[one, "list"]), ada.run_json(&[many, "list"]), "{one}");
    }
    let help = ada.run_ok(&["--help"]);
    assert!(!help.contains("  asset ") && help.contains("  assets "), "{help}");
}

#[tokio::test]
async fn finds_releases_by_short_references() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, grace) = create_contents(&app);
    let shown =
        |reference: &str| ada.run_json(&["release", "show", reference])["release_id"].as_str().unwrap().to_owned();
    let none = ada.run(&["releases", "show", "latest"]);
    assert!(none.code == 1 && none.err.contains("the workspace has no release"), "{}", none.err);
    let (first, second) = (draft(&ada, "dev"), draft(&ada, "dev"));
    let other = draft(&ada, "staging");
    assert_eq!(shown("sorter@dev"), second);
    assert_eq!(shown("latest"), other);
    assert_eq!(shown(&first), first);
    ada.run_ok(&["releases", "retire", &second]);
    assert_eq!(shown("sorter@dev"), first, "a retired release does not count");
    // The releases were created within a short time. Their identifiers have a common prefix, which is ambiguous as a
    // reference.
    let common = first.bytes().zip(second.bytes()).take_while(|(one, other)| one == other).count();
    assert!(common >= 4, "{first} {second}");
    let ambiguous = ada.run(&["releases", "show", &first[..4]]);
    assert!(ambiguous.code == 1 && ambiguous.err.contains("is the beginning of 3 releases"), "{}", ambiguous.err);
    assert!(
        ambiguous.err.contains(&second) && ambiguous.err.contains("dev, retired, by user:ada"),
        "{}",
        ambiguous.err
    );
    assert_eq!(shown(&first[..35].to_uppercase()), first, "a unique beginning");
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
    let over = ada.run(&["releases", "show", "sorter@dev"]);
    assert!(over.err.contains("are superseded or retired") && over.err.contains("`sorter@staging`"), "{}", over.err);
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
    assert_eq!(shown("sorter@staging"), pending);
    let rollback = |words: &[&str]| grace.run(&[&["releases", "rollback", "--reason", "Too curt."], words].concat());
    for words in [&["sorter@staging"][..], &["sorter@staging", "--lane", "guided"][..]] {
        let rolled = rollback(words);
        assert!(rolled.code == 1 && rolled.err.contains("no_previous_release"), "{words:?}: {}", rolled.err);
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
    for (words, code, expected) in [
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
        let output = ada.run(&words);
        assert!(output.code == code && output.err.contains(expected), "{words:?} {}: {}", output.code, output.err);
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
    let elsewhere = ada.run(&["run", "letter-box", "--env", "production", "--no-wait"]);
    assert!(
        elsewhere.code == 1
            && elsewhere.err.contains("no release of `letter-box` is active in environment `production`")
            && elsewhere.err.contains("\n  active in: dev\n")
            && elsewhere.err.ends_with("next: fairway run letter-box --env dev\n"),
        "{}",
        elsewhere.err
    );
    let json = ada.run(&["run", "letter-bix", "--env", "dev", "-o", "json"]);
    let json: Value = serde_json::from_str(json.err.lines().last().unwrap()).unwrap();
    assert_eq!(json["detail"]["candidates"][0]["name"], "letter-box");
    assert_eq!(json["detail"]["next_command"], "fairway run letter-box --env dev");
    // A caller that may not see the workload gets no suggestion, whether its slug is correct or similar.
    ada.run_ok(&["role-bindings", "create", "user:bea", "runtime_user", "--workload", "sorter"]);
    let bea = Terminal::connected(&app).acting_as("user:bea");
    for slug in ["letter-bix", "letter-box"] {
        let blind = bea.run(&["run", slug, "--env", "dev"]);
        let expected = format!("fairway: no workload `{slug}` is visible to you\nnext: fairway workloads list\n");
        assert_eq!((blind.code, blind.err), (1, expected));
    }
    let near = bea.run(&["run", "sortr", "--env", "dev"]);
    assert!(near.err.contains("did you mean `sorter`?"), "{}", near.err);
}
