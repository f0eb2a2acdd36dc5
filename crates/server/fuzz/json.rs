//! What must hold for any bytes that are sent as a body, for the fuzz target and for the test that feeds it.

#[path = "../src/serve/edge/http/question.rs"]
mod question;

use serde_json::Value;
use tollgate::core::{EXACT_MAX, Report};

use question::{ATTRIBUTES_MAX, BATCH_MAX, BadBody, Form, ID_MAX, NAME_MAX, Question, VALUE_MAX};

/// More than this is never told back.
const TOLD_MAX: usize = 100_000;

/// The bytes are read as every kind of question: each is refused with a reason, or says what anybody else reads in it.
pub(crate) fn body(bytes: &[u8]) {
    let read = serde_json::from_slice::<Value>(bytes).ok();
    for form in [Form::Check, Form::Look, Form::Report, Form::Receipt] {
        match form.read(bytes) {
            Ok(question) => is_what_it_says(form, &question, read.as_ref().expect("it is JSON")),
            Err(error) => is_told(&error, read.is_some()),
        }
    }
    match Form::Check.read_list(bytes) {
        Ok(questions) => {
            let list = read.as_ref().and_then(Value::as_array).expect("it is a list");
            assert!((1..=BATCH_MAX).contains(&questions.len()) && questions.len() == list.len());
            for (question, read) in questions.iter().zip(list) {
                is_what_it_says(Form::Check, question, read);
            }
        }
        Err(error) => is_told(&error, read.is_some()),
    }
}

fn is_what_it_says(form: Form, question: &Question<'_>, read: &Value) {
    if form == Form::Receipt {
        assert_eq!(read["receipt"], question.receipt());
        return;
    }
    let attributes = question.attributes();
    let all = read["attributes"].as_object().expect("attributes are an object");
    assert!(attributes.iter().count() == all.len() && all.len() <= ATTRIBUTES_MAX);
    for (name, value) in attributes.iter() {
        assert_eq!(all[name], value);
        assert!((1..=NAME_MAX).contains(&name.chars().count()) && value.chars().count() <= VALUE_MAX);
    }
    if form == Form::Report {
        let result = if question.result() == Report::Success { "success" } else { "failure" };
        assert_eq!(read["result"], result);
        return;
    }
    let request = question.request(&attributes);
    let cost = read.get("cost").map_or(Some(1.0), Value::as_f64);
    assert!(request.cost <= EXACT_MAX && cost == Some(request.cost as f64));
    assert_eq!(read.get("id").and_then(Value::as_str), request.id);
    assert!(request.id.is_none_or(|id| (1..=ID_MAX).contains(&id.chars().count())));
}

fn is_told(error: &BadBody, is_json: bool) {
    assert!(is_json || !error.to_string().is_empty());
    assert!(error.to_string().len() <= TOLD_MAX);
}
