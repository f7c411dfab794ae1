//! E-mails through a real SMTP server: content, deferral, rejection, and personal mailboxes.

use crate::{
    delivery::{
        DELIVERIES, ORGANIZATION, TWO_DAYS, await_deliveries, await_digest_lines, await_status, destination,
        opt_in_to_incidents, suspend,
    },
    support::workspace_fixture::{TENANT, WorkspaceFixture},
};
use fairway_testkit::{SmtpServer, TestApp};
use serde_json::{Value, json};

/// Starts a server that sends e-mails as `fairway@example.com`, and the SMTP server that receives them.
async fn server() -> (TestApp, SmtpServer) {
    let smtp = SmtpServer::start().unwrap();
    let app = TestApp::builder()
        .setting("FAIRWAY_SMTP_URL", smtp.url())
        .setting("FAIRWAY_MAIL_FROM", "Fairway <fairway@example.com>");
    (app.start().await, smtp)
}

/// Stores an identity of the local user with a verified e-mail address, as a sign-in does.
async fn sign_in(app: &TestApp) {
    let owner = app.database().connect_as_owner().await.unwrap();
    let signed_in =
        "INSERT INTO identity (tenant_id, identity_id, issuer, subject, actor, groups, email, first_seen_at,
            last_seen_at)
        SELECT tenant_id, gen_random_uuid(), 'https://issuer.example', 'local', 'user:local', '{}', 'local@example.org',
            fairway_now(), fairway_now() FROM tenant";
    owner.execute(signed_in, &[]).await.unwrap();
}

#[tokio::test]
async fn email_arrives_as_text_and_html() {
    let (app, smtp) = server().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let team = destination(&app, "email", "team", json!({ "address": "team@example.org" }), None).await;
    opt_in_to_incidents(&app, "email").await;
    suspend(&fixture).await;
    let mail = smtp.wait_for_mails(1).await.swap_remove(0);
    // The local user has no verified address yet, so the delivery to the user's own mailbox fails.
    let to_team = |delivery: &&Value| delivery["destination_id"] == team && delivery["status"] == "sent";
    let found = await_deliveries(&app, |found| found.iter().any(|delivery| to_team(&delivery))).await;
    let sent_delivery = found.iter().find(to_team).unwrap();
    assert_eq!((mail.from.as_str(), mail.to.as_slice()), ("fairway@example.com", &["team@example.org".to_owned()][..]));
    let inbox = fixture.await_notification("user:local", |notification| notification["category"] == "incidents").await;
    assert_eq!(mail.header("subject"), [inbox["title"].as_str().unwrap()]);
    assert_eq!(mail.header("from"), ["Fairway <fairway@example.com>"]);
    let id = format!("<{}@example.com>", sent_delivery["delivery_id"].as_str().unwrap());
    assert_eq!(mail.header("message-id"), [id.as_str()]);
    assert_eq!(mail.header("date").len(), 1);
    for (media_type, part) in &mail.parts {
        assert!(part.contains(inbox["body"].as_str().unwrap()), "{media_type}: {part}");
        assert!(part.contains(sent_delivery["source_event"]["id"].as_str().unwrap()), "{media_type}: {part}");
    }
    assert_eq!(mail.parts.keys().collect::<Vec<_>>(), ["text/html", "text/plain"]);
    assert_eq!((&sent_delivery["last_response_status"], &sent_delivery["attempt_count"]), (&json!(250), &json!(1)));
    // The SMTP password belongs to the operator, so no response shows it.
    let response = app.get(ORGANIZATION).await;
    assert!(!response.text().contains("p:w") && !response.text().contains("p%3Aw"), "{response}");
}

#[tokio::test]
async fn emails_escape_markup_in_texts_of_people() {
    let (app, smtp) = server().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let settings = json!({ "advanced_notifications_enabled": true });
    app.patch(format!("/v1/tenants/{TENANT}/settings"), settings).await.expect(200);
    sign_in(&app).await;
    let preferences = json!([{ "category": "reports", "channel": "email", "enabled": true }]);
    app.put("/v1/notifications/preferences", preferences).await.expect(200);
    let (title, body) = ("Grüße & <b>Bcc: x@example.net</b>", "<img src=x onerror=alert(1)>\n.\nQUIT");
    let audience = json!({ "roles": [], "workspaces": [fixture.workspace.as_str()] });
    let announcement = json!({ "title": title, "body": body, "audience": audience });
    app.post("/v1/notifications/announcements", announcement).await.expect(201);
    let mail = smtp.wait_for_mails(1).await.swap_remove(0);
    assert_eq!((mail.header("subject"), mail.to.len(), mail.header("bcc").len()), (vec![title], 1, 0));
    let (text, html) = (&mail.parts["text/plain"], &mail.parts["text/html"]);
    assert!(text.contains("QUIT") && html.contains("QUIT"), "{mail:?}");
    assert!(!html.contains("<img") && !html.contains("<b>") && html.contains("&lt;img"), "{html}");
}

#[tokio::test]
async fn deferred_and_rejected_mails_record_the_status_of_the_server() {
    let (app, smtp) = server().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let busy_destination = destination(&app, "email", "busy", json!({ "address": "busy@example.org" }), None).await;
    let refused_destination =
        destination(&app, "email", "refused", json!({ "address": "refused@example.org" }), None).await;
    opt_in_to_incidents(&app, "email").await;
    suspend(&fixture).await;
    let delivery_to =
        |found: &[Value], id: &str| found.iter().find(|delivery| delivery["destination_id"] == id).cloned();
    let is_attempted = |found: &[Value]| {
        [&busy_destination, &refused_destination]
            .iter()
            .all(|id| delivery_to(found, id).is_some_and(|delivery| delivery["last_error"].is_string()))
    };
    let found = await_deliveries(&app, is_attempted).await;
    let (deferred, rejected) =
        (delivery_to(&found, &busy_destination).unwrap(), delivery_to(&found, &refused_destination).unwrap());
    assert_eq!((&deferred["last_error"], &deferred["last_response_status"]), (&json!("receiver_failed"), &json!(451)));
    assert_eq!((&rejected["last_error"], &rejected["last_response_status"]), (&json!("rejected"), &json!(550)));
    app.database().set_clock_offset(TWO_DAYS).await.unwrap();
    let mail = smtp.wait_for_mails(1).await.swap_remove(0);
    let id = format!("<{}@example.com>", deferred["delivery_id"].as_str().unwrap());
    assert_eq!(mail.header("message-id"), [id.as_str()], "the attempts are the same mail");
    let found = await_deliveries(&app, |found| {
        delivery_to(found, &busy_destination).is_some_and(|delivery| delivery["status"] == "sent")
    })
    .await;
    assert_eq!(delivery_to(&found, &busy_destination).unwrap()["attempt_count"], 2);
    let response = app.get(DELIVERIES).await;
    assert!(!response.text().contains("S3CRET"), "nothing that the receiver answers is stored: {response}");
}

#[tokio::test]
async fn digest_reaches_the_verified_mailbox_of_its_person() {
    let (app, smtp) = server().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let settings = json!({ "advanced_notifications_enabled": true });
    app.patch(format!("/v1/tenants/{TENANT}/settings"), settings).await.expect(200);
    sign_in(&app).await;
    let hourly = json!({ "time_zone": "Europe/Berlin", "digest": { "incidents": "hourly" } });
    app.put("/v1/notifications/profile", hourly).await.expect(200);
    opt_in_to_incidents(&app, "email").await;
    suspend(&fixture).await;
    suspend(&fixture).await;
    await_digest_lines(&app, 2).await;
    app.database().set_clock_offset(TWO_DAYS).await.unwrap();
    let mail = smtp.wait_for_mails(1).await.swap_remove(0);
    assert_eq!(
        (mail.to.as_slice(), mail.header("subject")),
        (&["local@example.org".to_owned()][..], vec!["2 notifications of `incidents`"])
    );
    let text = &mail.parts["text/plain"];
    assert_eq!(text.matches("was suspended").count(), 2, "{text}");
    assert_eq!(await_status(&app, "sent").await["recipient"], "user:local");
    assert_eq!(smtp.wait_for_mails(1).await.len(), 1, "one mail for both facts");
}

#[tokio::test]
async fn burst_is_sent_as_three_emails_and_one_summary() {
    let (app, smtp) = server().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let settings = json!({ "advanced_notifications_enabled": true });
    app.patch(format!("/v1/tenants/{TENANT}/settings"), settings).await.expect(200);
    sign_in(&app).await;
    opt_in_to_incidents(&app, "email").await;
    // Waits for the start of a five-minute window, so that all facts are within one window.
    let owner = app.database().connect_as_owner().await.unwrap();
    let seconds_sql = "SELECT 301 - (floor(extract(epoch FROM now()))::bigint % 300)";
    app.database().set_clock_offset(owner.query_one(seconds_sql, &[]).await.unwrap().get(0)).await.unwrap();
    for _ in 0..7 {
        suspend(&fixture).await;
    }
    assert_eq!(smtp.wait_for_mails(3).await.len(), 3);
    await_digest_lines(&app, 4).await;
    let found =
        await_deliveries(&app, |found| found.iter().filter(|delivery| delivery["status"] == "sent").count() == 3).await;
    assert_eq!(found.len(), 4, "the rest waits for the end of the window: {found:#?}");
    app.database().set_clock_offset(TWO_DAYS).await.unwrap();
    let last_mail = smtp.wait_for_mails(4).await.pop().unwrap();
    assert_eq!(last_mail.header("subject"), ["4 notifications of `incidents`"]);
}
