//! Costs by expression, in the Common Expression Language.

use std::sync::LazyLock;

use cel::common::ast::{Expr, IdedExpr};
use cel::{Context, ExecutionError, ParseErrors, Program, Value};
use tollgate_core::rules::cost::Expression;
use tollgate_core::{Attributes, EXACT_MAX};

use tollgate_document::quote;

/// Longer expressions are refused: they are evaluated on every request.
const BYTES_MAX: usize = 512;

/// Compiles an expression over attributes whose value is a whole number.
///
/// Attributes are text; one that is absent is empty. `int(tokens)` makes a number of one.
pub(super) fn compile(text: &str) -> Result<Expression, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > BYTES_MAX {
        return Err(format!("it has {} bytes, and can have at most {BYTES_MAX}", text.len()));
    }
    let program = Program::compile(text).map_err(|errors| unreadable(&errors))?;
    bounded(program.expression())?;
    let names: Vec<String> = program.references().variables().into_iter().map(str::to_owned).collect();
    sound(&program, &names)?;
    Ok(Expression::new(move |attributes| evaluate(&program, &names, attributes)))
}

/// Functions whose work grows with nothing but the length of the attributes.
const FUNCTIONS: [&str; 8] = ["int", "uint", "size", "min", "max", "startsWith", "endsWith", "contains"];

/// What the functions do, made once: it is the larger part of an evaluation. CEL itself has no `min` and no `max`.
static LIBRARY: LazyLock<Context<'static, 'static>> = LazyLock::new(|| {
    let mut library = Context::default();
    let least = library.add_function("min", |a: i64, b: i64| a.min(b));
    let most = library.add_function("max", |a: i64, b: i64| a.max(b));
    least.and(most).expect("CEL has no functions of these names");
    library
});

/// Refuses what could make the work grow with more than the length of the expression: loops (`map`, `all`, ...), maps
/// and messages, and functions that are not listed.
fn bounded(expression: &IdedExpr) -> Result<(), String> {
    match &expression.expr {
        Expr::Ident(_) | Expr::Literal(_) => Ok(()),
        Expr::List(list) => list.elements.iter().try_for_each(bounded),
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            let word = name.starts_with(|c: char| c.is_ascii_alphabetic());
            if word && !FUNCTIONS.contains(&name) {
                return Err(format!("`{name}` is no function here; there are {}", FUNCTIONS.join(", ")));
            }
            call.target.iter().map(Box::as_ref).chain(&call.args).try_for_each(bounded)
        }
        _ => {
            Err("a cost is made of attributes, numbers, text, operators and functions; nothing else"
                .to_owned())
        }
    }
}

/// The first thing that is wrong, without the list of everything the parser knows.
fn unreadable(errors: &ParseErrors) -> String {
    let Some(first) = errors.errors.iter().min_by_key(|error| error.pos) else {
        return "it is no CEL expression".to_owned();
    };
    let said = first.msg.trim_start_matches("Syntax error: ");
    let said = said.split(" expecting ").next().unwrap_or(said);
    if said.contains("Recursion limit") {
        return "it is nested too deeply".to_owned();
    }
    if let Some(missing) = said.strip_suffix(" at '<EOF>'") {
        return format!("it ends before it is complete: {missing}");
    }
    if said.contains("'<EOF>'") {
        return "it ends before it is complete".to_owned();
    }
    let odd = ["token recognition error at: ", "extraneous input ", "mismatched input "];
    let what = match odd.iter().find_map(|words| said.strip_prefix(words)) {
        Some(input) => format!("{} does not belong there", quote(input.trim_matches('\''))),
        None => quote(said),
    };
    let (line, column) = first.pos;
    let line = if line == 1 { String::new() } else { format!(" of its line {line}") };
    format!("it is wrong at character {column}{line}: {what}")
}

/// Tries it on a request all of whose attributes are `1`, and refuses what no request could make right: a value that is
/// no whole number, or an operation on kinds that do not go together. Whatever depends on the values is left to requests.
fn sound(program: &Program, names: &[String]) -> Result<(), String> {
    let (wrong, found) = match execute(program, names, |_| "1") {
        Ok(Value::Int(_) | Value::UInt(_)) => return Ok(()),
        Ok(value) => (format!("it gives {}, expected a whole number", kind(&value)), vec![value]),
        Err(ExecutionError::UnsupportedBinaryOperator(operator, left, right)) => {
            let wrong = format!("`{operator}` does not take {} and {}", kind(&left), kind(&right));
            (wrong, vec![left, right])
        }
        Err(ExecutionError::NoSuchOverload(error)) => (quote(&error.to_string()), Vec::new()),
        Err(ExecutionError::UndeclaredReference(name)) => {
            (format!("{} is not known", quote(&name)), Vec::new())
        }
        Err(_) => return Ok(()),
    };
    if found.iter().any(|value| matches!(value, Value::String(_))) {
        Err(format!("{wrong}; attributes are texts, and `int(tokens)` makes a number of one"))
    } else {
        Err(wrong)
    }
}

/// What a value is, in the words of messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Int(_) | Value::UInt(_) => "a whole number",
        Value::Float(_) => "a fraction",
        Value::String(_) => "a text",
        Value::Bool(_) => "a truth value",
        Value::List(_) => "a list",
        Value::Null => "nothing",
        _ => "something else",
    }
}

fn evaluate(program: &Program, names: &[String], attributes: &Attributes<'_>) -> Option<u64> {
    let value = execute(program, names, |name| attributes.get(name).unwrap_or(""));
    let cost = match value.ok()? {
        Value::Int(cost) => u64::try_from(cost).ok()?,
        Value::UInt(cost) => cost,
        _ => return None,
    };
    (cost <= EXACT_MAX).then_some(cost)
}

fn execute<'a>(
    program: &Program,
    names: &'a [String],
    value_of: impl Fn(&'a str) -> &'a str,
) -> Result<Value, ExecutionError> {
    let mut context = LIBRARY.new_inner_scope();
    for name in names {
        context.add_variable_from_value(name.as_str(), value_of(name).to_owned());
    }
    program.execute(&context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::rules::Cost;

    fn cost(text: &str, attributes: &Attributes<'_>) -> Option<u64> {
        let value = compile(text).unwrap();
        let priced = Cost::Expression { text: text.to_owned(), value, default: 77 }.of(attributes, 1);
        (!priced.failed).then_some(priced.cost)
    }

    #[test]
    fn expressions_price_requests() {
        let request = Attributes::new().with("tokens", "250").with("model", "large");
        assert_eq!(cost("int(tokens) / 10 + 1", &request), Some(26));
        assert_eq!(cost("model == 'large' ? 5 : 1", &request), Some(5));
        assert_eq!(cost("size(model)", &request), Some(5));
        assert_eq!(cost("max(1, min(int(tokens), 99))", &request), Some(99));
    }

    #[test]
    fn an_expression_that_fails_is_said_to_have_failed() {
        let request = Attributes::new().with("tokens", "many");
        for text in ["int(tokens)", "int(absent)", "1 / 0", "0 - 1", "9223372036854775807"] {
            assert_eq!(cost(text, &request), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_bounded_is_refused() {
        let deep = "(".repeat(250) + "1" + &")".repeat(250);
        for text in [
            deep.as_str(),
            "[1,2].map(x, x)",
            "{'a': 1}.a",
            "[1].all(x, true)",
            "1 +",
            "",
            "matches(a, 'x')",
            &"1+".repeat(400),
        ] {
            assert!(compile(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_no_request_can_make_right_is_refused_and_what_one_can_is_not() {
        for (text, why) in [
            ("tokens", "it gives a text"),
            ("tokens // 10", "it gives a text"),
            ("tokens + 1", "`add` does not take a text and a whole number"),
            ("int(tokens) * 1.5", "does not take a whole number and a fraction"),
            ("tokens == '1'", "it gives a truth value"),
            ("int(tokens) +", "it ends before it is complete"),
            ("max(int(tokens), 1", "it ends before it is complete: missing ')'"),
            ("int(tokens) 10", "wrong at character 13"),
            ("round(tokens)", "`round` is no function here"),
        ] {
            let said = compile(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
        for text in ["10 / (int(tokens) - 1)", "int(tokens) - 5", "int(model)", "model == 'a' ? 2 : 1"] {
            assert!(compile(text).is_ok(), "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_text_makes_it_panic(text in "[a-z0-9 +*/()'\"\\[\\]{}.,?:<>=!&|-]{0,60}") {
            if let Ok(expression) = compile(&text) {
                let request = Attributes::new().with("a", "12").with("b", "x");
                Cost::Expression { text, value: expression, default: 1 }.of(&request, 1);
            }
        }
    }
}
