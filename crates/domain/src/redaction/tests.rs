mod duration;

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn redact(text: &str) -> String {
    Redactor::default().redact_text(text).text
}

/// Asserts the expected redaction of each text.
fn assert_all(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(redact(text), *expected, "{text}");
    }
}

fn assert_untouched(texts: &[&str]) {
    for text in texts {
        assert_eq!(redact(text), *text);
    }
}

#[test]
fn masks_email_addresses() {
    assert_all(&[
        ("Write to ada.lovelace+x@mail.example.org.", "Write to [email]."),
        ("<mailto:ada@example.com>, email=o'neil@example.co.uk", "<mailto:[email]>, email=[email]"),
        ("a@b.com,c@d.net;e@f.com/g", "[email],[email];[email]/g"),
        ("J\u{fc}rgen@m\u{fc}ller.de \u{7528}\u{6237}@\u{4f8b}\u{5b50}.\u{4e2d}\u{56fd}", "[email] [email]"),
        ("x@y.xn--p1ai x@y.com-4111111111111111 x@y.com2 .x@y.com.1", "[email] [email]-[card] x@y.com2 .[email].1"),
        ("a@b.co@c.de 'a@b.com' _a@b.com a@b@c.com", "[email]@c.de '[email]' _[email] a@[email]"),
    ]);
    assert_untouched(&["@ada", "a@b", "ada@ example.com", "a @b.com", "pkg@1.2", "@@@", "a@.com", "a@b.c"]);
}

#[test]
fn masks_card_numbers() {
    assert_all(&[
        ("4111111111111111", "[card]"),
        ("4111 1111 1111 1111, exp 12/27", "[card], exp 12/27"),
        ("4111-1111-1111-1111.", "[card]."),
        ("Amex 3782 822463 10005; Diners 3056 930902 5904; 378282246310005", "Amex [card]; Diners [card]; [card]"),
        ("5555\u{a0}5555\u{a0}5555\u{a0}4444 2223003122003222", "[card] [card]"),
        ("name,6011111111111117,2027", "name,[card],2027"),
        ("+49 30 1234567 4111 1111 1111 1111", "[phone] [card]"),
        ("1234 4111 1111 1111 1111", "1234 [card]"),
    ]);
    assert_untouched(&[
        "4111111111111112",
        "1732230000009",
        "2024 2022 2026 2026",
        "0.4111111111111111",
        "x4111111111111111",
        "4111111111111111x",
        "41111111111111111111111",
        "550e8400-e29b-41d4-a716-446655440000",
    ]);
}

#[test]
fn masks_ibans() {
    assert_all(&[
        ("DE89370400440532013000", "[iban]"),
        ("IBAN: de89 3704 0044 0532 0130 00, BIC X", "IBAN: [iban], BIC X"),
        ("GB82 WEST 1234 5698 7654 32 and NO93 8601 1117 947", "[iban] and [iban]"),
        ("FR14-2004-1010-0505-0001-3M02-606 euros", "[iban] euros"),
    ]);
    assert_untouched(&[
        "DE88370400440532013000",
        "DE89 3704 0044",
        "XDE89370400440532013000",
        "AB12",
        "ZZ891234567890123",
    ]);
}

#[test]
fn masks_ip_addresses() {
    assert_all(&[
        ("from 192.168.0.17:8080 to 10.0.0.0/8.", "from [ip]:8080 to [ip]/8."),
        ("It is 8.8.8.8. And (1.1.1.1), \"9.9.9.9\"", "It is [ip]. And ([ip]), \"[ip]\""),
        ("[2001:db8::1]:443 fe80::1%eth0 2001:db8::/32 ::1", "[[ip]]:443 [ip]%eth0 [ip]/32 [ip]"),
        ("::ffff:192.0.2.1 is 2001:0db8:0000:0000:0000:ff00:0042:8329: see", "[ip] is [ip]: see"),
        // A version of four numbers has the same form as an IP address.
        ("version 1.2.3.4", "version [ip]"),
    ]);
    assert_untouched(&[
        "1.2.3",
        "1.2.3.4.5",
        "v1.2.3.4",
        "256.1.1.1",
        "1.2.3.4a",
        "10:30:45",
        "aa:bb:cc:dd:ee:ff",
        "std::add",
        "x :: y",
        "1:2:3:4:5:6:7:8:9",
        "01.02.03.04",
    ]);
}

#[test]
fn masks_national_ids() {
    for (scheme, valid, invalid) in [
        (
            NationalId::UsSsn,
            vec!["078-05-1120", "078 05 1120"],
            vec!["666-05-1120", "900-05-1120", "078-00-1120", "078051120"],
        ),
        (
            NationalId::UkNino,
            vec!["AB123456C", "ab 12 34 56 c"],
            vec!["GB123456C", "AO123456C", "DA123456C", "AB123456E"],
        ),
        (
            NationalId::DeSteuerId,
            vec!["65929970489", "65 929 970 489"],
            vec!["65929970488", "12345678903", "05929970489"],
        ),
        (
            NationalId::FrInsee,
            vec!["255081416802538", "2 55 08 14 168 025 38", "184032A00400101"],
            vec!["255081416802539", "255131416802538"],
        ),
        (NationalId::EsDni, vec!["12345678Z", "12345678-z"], vec!["12345678A", "1234567Z"]),
        (NationalId::EsNie, vec!["X1234567L", "x-1234567-l"], vec!["X1234567A", "W1234567L"]),
    ] {
        let redactor = Redactor::new(&[scheme]);
        for id in valid {
            assert_eq!(redactor.redact_text(&format!("id {id}.")).text, "id [national_id].", "{id}");
            assert_eq!(
                redactor.redact_text(&format!("x{id} {id}x")).counts.count_of(PersonalDataClass::NationalId),
                0,
                "{id}"
            );
            assert_eq!(Redactor::new(&[]).redact_text(id).counts.count_of(PersonalDataClass::NationalId), 0, "{id}");
        }
        for id in invalid {
            assert_eq!(redactor.redact_text(id).counts.count_of(PersonalDataClass::NationalId), 0, "{id}");
        }
    }
}

#[test]
fn masks_phone_numbers() {
    assert_all(&[
        ("+4915112345678 +1 (415) 555-0132, +49 (0)30 1234567", "[phone] [phone], [phone]"),
        ("tel:+33-1-23-45-67-89 or 0033 1 23 45 67 89", "tel:[phone] or [phone]"),
        (
            "(415) 555-0132, 415-555-0132, 415.555.0132, 1-800-555-0199, 555-123-4567",
            "[phone], [phone], [phone], [phone], [phone]",
        ),
        ("030 1234567, 0170/123 45 67, (030) 123 4567, 01 23 45 67 89", "[phone], [phone], [phone], [phone]"),
        ("020 7946 0958 and 07700900123, 030 / 1234567", "[phone] and [phone], [phone]"),
        ("Call +1 415 555 0132 (2 people). +49 30 1234567. 5 left", "Call [phone] (2 people). [phone]. 5 left"),
    ]);
    assert_untouched(&[
        "01.02.2024 10:30",
        "01-02-2024 10",
        "2024-01-02",
        "978-3-16-148410-0",
        "0.0123456789",
        "+1234567",
        "1234567890",
        "0000012345678",
        "3,030 200 300",
        "08.30-09.45 10.15",
        "0.12 0.34 0.56 0.78",
        "100 200 3000",
        "+1234567890123456",
        "(2024) 1",
        "555-0132",
    ]);
}

#[test]
fn normalizes_dots_hidden_characters_and_digits() {
    assert_all(&[
        ("4111.1111.1111.1111, 4111\u{b7}1111\u{b7}1111\u{b7}1111.", "[card], [card]."),
        ("4\u{200b}111 1111 1111 11\u{ad}11", "[card]"),
        ("\u{feff}4111\u{2060}1111\u{200d}1111\u{34f}1111\u{200b}, then", "\u{feff}[card]\u{200b}, then"),
        ("４１１１１１１１１１１１１１１１ 𝟒111𝟙111𝟷111111１ ٤١١١١١١١١١١١١١١١", "[card] [card] [card]"),
        (
            "ada\u{ad}@exam\u{200b}ple.com; ａｄａ＠ｅｘａｍｐｌｅ．ｃｏｍ; ada@example。com",
            "[email]; [email]; [email]",
        ),
        ("Ju\u{308}rgen@example.com", "[email]"),
        ("DE89.3704.0044.0532.0130.00. ＤＥ89\u{200c}370400440532013000", "[iban]. [iban]"),
        ("１９２．１６８．０．１ 192\u{200d}.168.0.1 2001:db8:\u{ad}:1", "[ip] [ip] [ip]"),
        (
            "078.05.1120 078－05－1120 65.929.970.489 ab\u{2022}12\u{2022}34\u{2022}56\u{2022}c",
            &["[national_id]"; 4].join(" "),
        ),
        ("+４９ 30 123\u{2060}4567, ０30 1234567", "[phone], [phone]"),
        ("４111111111111111\u{200b}4111111111111111", "[card]\u{200b}[card]"),
        ("4\u{0}111\u{1}1111\u{1b}\u{7f}11111111, 4111\u{80}1111\u{c}11111111", "[card], [card]"),
        ("078-05\u{8}-1120 ada\u{1f}@exam\u{9f}ple.com 10.\u{2}0.0.1", "[national_id] [email] [ip]"),
        // A hidden character may also stand between a match and the text beside it.
        ("x\u{200b}4111111111111111\u{200b}x", "x\u{200b}[card]\u{200b}x"),
    ]);
    assert_untouched(&[
        "e\u{301}te\u{301} 👍🏽 ❤\u{fe0f} १२",
        "3.14159265358979",
        "0.4111.1111.1111.1111",
        "x\u{ad}y 1.2\u{200b}.3",
    ]);
    let mut value = json!({ "ｐｈｏｎｅ": "４９３０1234567", "a\u{200b}@b.com": "٠" });
    let counts = Redactor::default().redact(&mut value);
    assert_eq!(value, json!({ "ｐｈｏｎｅ": "[phone]", "[email]": "٠" }));
    assert_eq!(serde_json::to_value(&counts).unwrap(), json!({ "email": 1, "phone": 1 }));
    let unmasked = Redactor::default()
        .without_masking(&[PersonalDataClass::Card, PersonalDataClass::Email])
        .redact_text("4111111111111111 ４111111111111111 a＠b.com a@b.com");
    assert_eq!(
        (
            unmasked.text.contains('['),
            unmasked.counts.count_of(PersonalDataClass::Card),
            unmasked.counts.count_of(PersonalDataClass::Email)
        ),
        (false, 2, 2)
    );
}

#[test]
fn accepts_mixed_separators_in_cards_and_ibans() {
    assert_all(&[
        ("4111 1111-1111 1111", "[card]"),
        ("4111-1111.1111 1111", "[card]"),
        ("4111\t1111\t1111\t1111", "[card]"),
        ("4111\n1111\r\n1111\n 1111.", "[card]."),
        ("4111..1111..1111..1111", "[card]"),
        ("4111 - 1111 - 1111 - 1111", "[card]"),
        ("4111\u{2800}1111\u{2800}1111\u{2800}1111", "[card]"),
        ("4111\u{2028}1111\u{85}1111\u{3000}1111", "[card]"),
        ("\u{2066}4111\u{2069} \u{2066}1111\u{2069} \u{2066}1111 11\u{2068}11\u{2069}", "\u{2066}[card]\u{2069}"),
        ("4111 \u{202a}1111\u{202c}-\u{2067}1111\u{2069}\u{600}1111", "[card]"),
        ("3782\t822463-10005", "[card]"),
        ("DE89\n3704\t0044 - 0532..0130\u{2800}00", "[iban]"),
        ("GB82 WEST\n1234 5698 7654 32", "[iban]"),
    ]);
    let nine_spaces = format!("4111{}1111 1111 1111", " ".repeat(9));
    assert_untouched(&[
        &nine_spaces,
        "4111, 1111, 1111, 1111",
        "4111/1111/1111/1111",
        "4111 1111\t1111 1112",
        "0.4111\n1111 1111 1111",
        "1,5\t2,5\n4111\t1111\n",
        "2024-01-02\n2024-01-03\n2024-01-04",
        "5000\n7000\n9000",
    ]);
}

/// Chinese, Japanese and Korean write no spaces between words and numbers.
#[test]
fn unspaced_scripts_are_word_boundaries() {
    assert_all(&[
        ("卡号4111111111111111号", "卡号[card]号"),
        ("カード4111 1111 1111 1111です", "カード[card]です"),
        ("ｶｰﾄﾞ4111111111111111ﾃﾞｽ", "ｶｰﾄﾞ[card]ﾃﾞｽ"),
        ("카드4111-1111-1111-1111번", "카드[card]번"),
        ("電話030 1234567へ", "電話[phone]へ"),
        ("地址192.168.0.1。", "地址[ip]。"),
        ("账户DE89370400440532013000在", "账户[iban]在"),
        ("身分078-05-1120と", "身分[national_id]と"),
    ]);
    assert_untouched(&[
        "卡号4111111111111112号",
        "é4111111111111111",
        "д4111111111111111",
        "4111111111111111ก",
        "第1章2024年",
    ]);
}

#[test]
fn counts_matches_without_revealing_them() {
    let redaction = Redactor::default().redact_text("a@b.com, c@d.com, 10.0.0.1, 078-05-1120");
    assert_eq!(redaction.text, "[email], [email], [ip], [national_id]");
    assert_eq!(serde_json::to_value(&redaction.counts).unwrap(), json!({"email": 2, "ip": 1, "national_id": 1}));
    assert_eq!(redaction.counts.total(), 4);
    assert!(Redactor::default().redact_text("nothing").counts.is_empty());
    for class in PersonalDataClass::ALL {
        assert_eq!(class.mask(), format!("[{}]", class.as_str()));
    }
    for scheme in NationalId::ALL {
        assert_eq!(NationalId::parse(scheme.as_str()), Some(scheme));
    }
    assert_eq!(NationalId::parse("passport"), None);
}

#[test]
fn masks_nested_values() {
    let mut value = json!({
        "answer": ["ask a@b.com", {"deep": "10.0.0.1"}, null, true],
        "card": 4_111_111_111_111_111_u64, "cards": [4_111_111_111_111_111.0, -4_111_111_111_111_111_i64],
        "id": 65_929_970_489_u64,
        "phone": 4_930_123_456_u64, "mobilePhones": ["491511234567", 12], "count": 4_930_123_456_u64, "price": 10.5,
    });
    let counts = Redactor::default().redact(&mut value);
    let expected = json!({
        "answer": ["ask [email]", {"deep": "[ip]"}, null, true],
        "card": "[card]", "cards": ["[card]", "[card]"],
        "id": "[national_id]",
        "phone": "[phone]", "mobilePhones": ["[phone]", 12], "count": 4_930_123_456_u64, "price": 10.5,
    });
    assert_eq!(value, expected);
    assert_eq!(
        serde_json::to_value(&counts).unwrap(),
        json!({"email": 1, "ip": 1, "card": 3, "phone": 2, "national_id": 1})
    );
}

#[test]
fn masks_keys_and_keeps_every_member() {
    let mut value = json!({"a@b.com": 1, "c@d.com": 2, "[email]": 3, "e@f.com": {"g@h.com": 4}, "[email] 3": 5});
    let counts = Redactor::default().redact(&mut value);
    let expected = json!({"[email]": 3, "[email] 2": 1, "[email] 3": 5, "[email] 4": 2, "[email] 5": {"[email]": 4}});
    assert_eq!(value, expected);
    assert_eq!(counts.count_of(PersonalDataClass::Email), 4);
    assert!(Redactor::default().redact(&mut value).is_empty());
    assert_eq!(value, expected);
}

/// Generates fragments of patterns, so that their combinations contain many texts that almost match.
fn fragment() -> impl Strategy<Value = String> {
    let fragments = [
        "4111111111111111",
        "4111 1111 1111 1111",
        "DE89370400440532013000",
        "a@b.com",
        "192.168.0.1",
        "2001:db8::",
        "::1",
        "078-05-1120",
        "AB123456C",
        "12345678Z",
        "+49 30 1234567",
        "030 1234567",
        "(415) 555-0132",
        "0170",
        "[email]",
        "1.2.3.4.",
        "com",
        "dead:beef",
        "65929970489",
        "00",
        "\u{200b}",
        "\u{ad}",
        "４１１１",
        "1111.1111.1111",
        "4111\t1111 -",
        "\n1111\u{2800}1111",
        "卡",
        "\u{2066}",
        "＠b．com",
    ];
    prop_oneof![
        4 => proptest::sample::select(fragments.to_vec()).prop_map(str::to_owned),
        4 => "[ .:/@()+\\-\\[\\]%,_]{1,3}",
        3 => "[0-9]{1,6}",
        2 => "[a-zA-Z]{1,4}",
        1 => "\\PC{1,3}",
    ]
}

/// A mask must not turn the text beside it into a match.
#[test]
fn masks_create_no_adjacent_matches() {
    assert_all(&[
        ("1.2.3.4.078-05-1120", "1.2.3.4.[national_id]"),
        ("2001:db8::AB123456C", "2001:db8::[national_id]"),
        ("1:2:3:4:5:6:7:8:4111111111111111", "1:2:3:4:5:6:7:8:[card]"),
        ("a@b.com+4915112345678", "[email][phone]"),
        ("a@b.com::add", "[email]::add"),
        ("4111111111111111::1", "[card]::1"),
    ]);
    for masked in
        ["1.2.3.4.[national_id]", "2001:db8::[national_id]", "1:2:3:4:5:6:7:8:[card]", "[email]::add", "[card]::1"]
    {
        assert_eq!(redact(masked), masked);
    }
}

#[test]
fn masks_an_address_whose_domain_ends_at_another_match() {
    let redaction = Redactor::default().redact_text("a@b.com\u{5361}4111111111111111]");
    assert_eq!(redaction.text, "[email][card]]");
    assert_eq!(redaction.counts.total(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn redaction_is_idempotent(fragments in prop::collection::vec(fragment(), 0..14)) {
        let redacted = Redactor::default().redact_text(&fragments.concat());
        let redacted_again = Redactor::default().redact_text(&redacted.text);
        prop_assert_eq!(&redacted_again.text, &redacted.text, "{}", fragments.concat());
        prop_assert!(redacted_again.counts.is_empty());
    }

    /// The unmasked text between the masks occurs in the original text, in the same order.
    #[test]
    fn keeps_the_text_between_masks(fragments in prop::collection::vec(fragment(), 0..14)) {
        let text = fragments.concat().replace('[', "(");
        let redaction = Redactor::default().redact_text(&text);
        let masks = PersonalDataClass::ALL.map(PersonalDataClass::mask);
        let mut unmasked_text = redaction.text.clone();
        for mask in masks {
            unmasked_text = unmasked_text.replace(mask, "\0");
        }
        let mut remaining = text.as_str();
        let mut fragments = unmasked_text.split('\0');
        let first = fragments.next().unwrap_or_default();
        prop_assert!(remaining.starts_with(first));
        remaining = &remaining[first.len()..];
        for fragment in fragments {
            let offset = remaining.find(fragment);
            prop_assert!(offset.is_some(), "{:?} is not in {:?}", fragment, remaining);
            remaining = &remaining[offset.unwrap() + fragment.len()..];
        }
        prop_assert_eq!(redaction.text == text, redaction.counts.is_empty());
    }

    #[test]
    fn redacts_arbitrary_text(text in "\\PC{0,200}|[\\s\\S]{0,100}") {
        let redacted = redact(&text);
        prop_assert_eq!(redact(&redacted), redacted);
    }
}

#[test]
fn counts_classes_without_masking_them() {
    let redactor = Redactor::default().without_masking(&[
        PersonalDataClass::Email,
        PersonalDataClass::Card,
        PersonalDataClass::Phone,
    ]);
    let mut value = serde_json::json!({
        "a@b.com": "a@b.com, 10.0.0.1, 4111 1111 1111 1111", "phone": 3_012_345_678_u64, "card": 4_111_111_111_111_111_u64,
    });
    let match_counts = redactor.redact(&mut value);
    let expected = serde_json::json!({
        "a@b.com": "a@b.com, [ip], 4111 1111 1111 1111", "phone": 3_012_345_678_u64, "card": 4_111_111_111_111_111_u64,
    });
    assert_eq!(value, expected);
    let counts = [PersonalDataClass::Email, PersonalDataClass::Ip, PersonalDataClass::Card, PersonalDataClass::Phone]
        .map(|class| match_counts.count_of(class));
    assert_eq!(counts, [2, 1, 2, 1]);
}
