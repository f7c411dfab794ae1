//! Tests of the SQL texts of statements and commits.

use super::*;
use fairway_domain::{
    access::ActorRef,
    audit::{FactKind, FactSubject, Stamp},
    time::Timestamp,
};
use uuid::Uuid;

fn scope() -> TenantScope {
    TenantScope::for_background_task(Uuid::from_u128(7).into())
}

#[test]
fn numbers_the_columns_of_one_row() {
    static FIND: Query = Query::new("SELECT name FROM thing JOIN input USING (tenant_id, thing_id)");
    let input = Input::new(scope()).with("thing_id", Uuid::nil()).with("label", None::<&str>);
    insta::assert_snapshot!(FIND.text(&input).unwrap(), @"WITH input AS (SELECT $1::uuid AS tenant_id, $2::uuid AS thing_id, $3::text AS label) SELECT name FROM thing JOIN input USING (tenant_id, thing_id)");
    assert_eq!(input.params().len(), 3);
}

#[test]
fn unnests_the_columns_of_many_rows() {
    static LOAD: Query = Query::new("found AS (SELECT * FROM thing JOIN input USING (thing_id)) SELECT * FROM found");
    let of_rows = |rows: usize| {
        Input::many().with_column("thing_id", vec![Uuid::nil(); rows]).with_column("label", vec![Some("a"); rows])
    };
    let text_of_two = LOAD.text(&of_rows(2)).unwrap();
    insta::assert_snapshot!(text_of_two, @"WITH input AS (SELECT * FROM unnest($1::uuid[], $2::text[]) AS input (thing_id, label)), found AS (SELECT * FROM thing JOIN input USING (thing_id)) SELECT * FROM found");
    assert_eq!(LOAD.text(&of_rows(0)).unwrap(), text_of_two);
    insta::assert_snapshot!(LOAD.text(&of_rows(1)).unwrap(), @"WITH input AS (SELECT $1::uuid AS thing_id, $2::text AS label), found AS (SELECT * FROM thing JOIN input USING (thing_id)) SELECT * FROM found");
    assert_eq!(format!("{:?}", of_rows(1).params()), format!("[{:?}, {:?}]", Uuid::nil(), Some("a")));
}

#[test]
fn numbers_the_parameters_of_a_filter() {
    let mut input = Input::of_params(scope());
    let conditions = [input.bind("name", "a"), input.bind_list("thing_ids", vec![Uuid::nil()])];
    let sql = format!(
        "SELECT FROM thing WHERE tenant_id = {{tenant_id}} AND name = {} AND thing_id = ANY({})",
        conditions[0], conditions[1]
    );
    insta::assert_snapshot!(input.number_names(sql).unwrap(), @"SELECT FROM thing WHERE tenant_id = $1::uuid AND name = $2::text AND thing_id = ANY($3::uuid[])");
    let unbound = input.number_names("SELECT FROM thing WHERE kind = {kind}".to_owned());
    assert!(unbound.is_err(), "{unbound:?}");
}

fn on_one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn fact() -> Fact {
    let stamp = Stamp {
        fact_id: Uuid::nil().into(),
        at: Timestamp::parse("2026-01-01T00:00:00Z").unwrap(),
        actor: ActorRef::local(),
        request_id: Uuid::nil().into(),
    };
    let subject = FactSubject { kind: "thing", id: Uuid::nil() };
    Fact::new(FactKind::AssetLifecycleChanged, subject, None, &stamp, serde_json::json!({}))
}

#[test]
fn ends_every_commit_in_fairway_commit() {
    static CHANGE: GuardedCommit = GuardedCommit::returning(
        "updated_thing AS (UPDATE thing SET name = input.name FROM input RETURNING 1)",
        "(SELECT count(*) = 1 FROM updated_thing)",
        "(SELECT 7) AS answer",
    );
    static ONCE: GuardedCommit = GuardedCommit::when("NOT EXISTS (SELECT FROM fact)", "", "true");
    let input = Input::new(scope()).with("name", "a");
    let (sql, input) = CHANGE.prepare(scope(), &fact(), None, input).unwrap();
    insta::assert_snapshot!(on_one_line(sql), @"WITH input AS (SELECT $1::uuid AS tenant_id, $2::text AS name, $3::uuid AS fact_id, $4::uuid AS fact_workspace_id, $5::text AS fact_kind, $6::bytea AS fact_leaf_hash, $7::bytea AS fact_body, $8::text AS key_caller, $9::text AS key_route, $10::text AS key_name, $11::bytea AS key_digest, $12::smallint AS key_status, $13::uuid AS key_resource), updated_thing AS (UPDATE thing SET name = input.name FROM input RETURNING 1) SELECT fairway_commit((SELECT count(*) = 1 FROM updated_thing), tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash, key_caller, key_route, key_name, key_digest, key_status, key_resource), (SELECT 7) AS answer FROM input");
    assert_eq!(input.params().len(), 13);
    let (sql, _) = ONCE.prepare(scope(), &fact(), None, Input::new(scope())).unwrap();
    insta::assert_snapshot!(on_one_line(sql), @"WITH input AS (SELECT $1::uuid AS tenant_id, $2::uuid AS fact_id, $3::uuid AS fact_workspace_id, $4::text AS fact_kind, $5::bytea AS fact_leaf_hash, $6::bytea AS fact_body, $7::text AS key_caller, $8::text AS key_route, $9::text AS key_name, $10::bytea AS key_digest, $11::smallint AS key_status, $12::uuid AS key_resource) SELECT fairway_commit(true, tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash, key_caller, key_route, key_name, key_digest, key_status, key_resource) FROM input WHERE NOT EXISTS (SELECT FROM fact)");
}

#[test]
fn writes_facts_only_of_rows_that_passed_their_guard() {
    static CHANGE: GuardedBatchCommit =
        GuardedBatchCommit::new("passed AS (SELECT * FROM input)", "passed", "SELECT fact_id FROM passed");
    let mut facts = FactColumns::default();
    facts.push(scope(), &fact());
    facts.push(scope(), &fact());
    let input = facts.add_to_input(Input::many().with_column("tenant_id", vec![Uuid::nil(); 2]));
    insta::assert_snapshot!(on_one_line(CHANGE.text(&input).unwrap()), @"WITH input AS (SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[]) AS input (tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash)), passed AS (SELECT * FROM input), recorded_fact AS ( INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash) SELECT tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash FROM passed), pending_fact AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT tenant_id, fact_id FROM passed) SELECT fact_id FROM passed");
}

#[test]
fn refuses_a_second_form_of_input() {
    static FIND: Query = Query::new("SELECT FROM input");
    let first = || Input::new(scope()).with("slug", "a").with("name", "b");
    assert!(FIND.text(&first()).is_ok() && FIND.text(&first()).is_ok());
    assert!(FIND.text(&Input::new(scope()).with("name", "b").with("slug", "a")).is_err());
    assert!(FIND.text(&Input::new(scope()).with("slug", "a")).is_err());
}

#[test]
fn numbers_columns_of_rows_before_parameters() {
    static COUNT: Query = Query::new(
        "counted AS (SELECT thing_id, count(*) FROM part JOIN input USING (thing_id) GROUP BY 1)
         SELECT * FROM counted WHERE thing_id >= {first} LIMIT {limit}",
    );
    let input = Input::many()
        .with_column("thing_id", vec![Uuid::nil(); 2])
        .with_param("first", Uuid::nil())
        .with_rows("part")
        .with_column("thing_id", vec![Uuid::nil()])
        .with_column("name", vec!["a"])
        .with_param("limit", 5_i64);
    insta::assert_snapshot!(on_one_line(COUNT.text(&input).unwrap()), @"WITH input AS (SELECT * FROM unnest($1::uuid[]) AS input (thing_id)), part AS (SELECT * FROM unnest($2::uuid[], $3::text[]) AS part (thing_id, name)), counted AS (SELECT thing_id, count(*) FROM part JOIN input USING (thing_id) GROUP BY 1) SELECT * FROM counted WHERE thing_id >= $4::uuid LIMIT $5::bigint");
    assert_eq!(input.params().len(), 5);
}

#[test]
fn sends_a_statement_with_parameters_alone_as_it_is() {
    static FIND: Query =
        Query::new("SELECT '{}'::text[] FROM thing WHERE thing_id = {thing_id} OR parent = {thing_id}");
    let input = Input::without_rows().with_param("thing_id", Uuid::nil());
    insta::assert_snapshot!(FIND.text(&input).unwrap(), @"SELECT '{}'::text[] FROM thing WHERE thing_id = $1::uuid OR parent = $1::uuid");
}

#[test]
fn refuses_a_parameter_without_a_value() {
    static FIND: Query = Query::new("SELECT FROM thing WHERE thing_id = {thing_id}");
    assert!(FIND.text(&Input::without_rows().with_param("slug", "a")).is_err());
}
