//! Costs by expression, in the Common Expression Language (CEL).

use std::sync::LazyLock;

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};
use cel::{Context, ExecutionError, ParseErrors, Program, Value};
use tollgate_core::rules::cost::Expression;
use tollgate_core::{Attributes, EXACT_MAX};

use tollgate_document::quote;

/// Maximum length of an expression. It is evaluated on every request.
const BYTES_MAX: usize = 512;

/// Maximum number of operators, functions and operands.
const NODES_MAX: usize = 128;

/// Compiles an expression over attributes whose result is a whole number.
///
/// Attributes are text; an absent attribute is empty. `int(tokens)` converts one to a number.
pub(super) fn compile(text: &str) -> Result<Expression, String> {
    if text.trim().is_empty() {
        return Err("the expression is empty".to_owned());
    }
    if text.len() > BYTES_MAX {
        return Err(format!("the expression has {} bytes; the maximum is {BYTES_MAX}", text.len()));
    }
    check_nesting(text)?;
    let program = Program::compile(text).map_err(|errors| syntax_error(&errors))?;
    let mut nodes_left = NODES_MAX;
    check_bounded(program.expression(), &mut nodes_left)?;
    let names: Vec<String> = program.references().variables().into_iter().map(str::to_owned).collect();
    check_types(&program, &names)?;
    Ok(Expression::new(move |attributes| evaluate(&program, &names, attributes)))
}

/// Returns the attributes that an expression reads. Empty if it is invalid.
pub(super) fn attributes(text: &str) -> Vec<String> {
    if text.len() > BYTES_MAX {
        return Vec::new();
    }
    let Ok(program) = Program::compile(text) else { return Vec::new() };
    program.references().variables().into_iter().map(str::to_owned).collect()
}

/// Maximum nesting of brackets.
const NESTING_MAX: usize = 16;

/// Maximum number of conditionals, and of lists and indexes.
const BRANCHES_MAX: usize = 32;

/// Returns an error for a deeply nested expression, before it is parsed: nested lists overflow the parser's stack before
/// its own limit is reached. Brackets in texts count too.
fn check_nesting(text: &str) -> Result<(), String> {
    let mut depth: usize = 0;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            return Err("the expression is nested too deeply".to_owned());
        }
    }
    for sign in ['?', '['] {
        if text.matches(sign).count() > BRANCHES_MAX {
            return Err(format!("the expression has more than {BRANCHES_MAX} `{sign}`"));
        }
    }
    Ok(())
}

/// Functions whose time depends only on the length of the attributes.
const FUNCTIONS: [&str; 8] = ["int", "uint", "size", "min", "max", "startsWith", "endsWith", "contains"];

/// The functions, built once because that takes most of the time of an evaluation. CEL has no `min` and `max`.
static LIBRARY: LazyLock<Context<'static, 'static>> = LazyLock::new(|| {
    let mut library = Context::default();
    let least = library.add_function("min", |a: i64, b: i64| a.min(b));
    let most = library.add_function("max", |a: i64, b: i64| a.max(b));
    least.and(most).expect("CEL has no functions of these names");
    library
});

/// Returns an error for anything whose time is not bounded by the length of the expression and of the attributes: loops
/// (`map`, `all`, ...), maps, messages, joined texts, and functions other than [`FUNCTIONS`].
fn check_bounded(expression: &IdedExpr, nodes_left: &mut usize) -> Result<(), String> {
    *nodes_left = nodes_left
        .checked_sub(1)
        .ok_or_else(|| format!("the expression has more than {NODES_MAX} operators and operands"))?;
    match &expression.expr {
        Expr::Ident(_) | Expr::Literal(_) => Ok(()),
        Expr::List(list) => list.elements.iter().try_for_each(|each| check_bounded(each, nodes_left)),
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            let word = name.starts_with(|c: char| c.is_ascii_alphabetic());
            if word && !FUNCTIONS.contains(&name) {
                return Err(format!("unknown function `{name}`; available: {}", FUNCTIONS.join(", ")));
            }
            // Each step of a sum of texts copies all of it: the time would be quadratic.
            if name == operators::ADD && call.args.len() == 2 && call.args.iter().all(is_text) {
                return Err(
                    "`+` cannot join texts; `int(tokens)` converts an attribute to a number".to_owned()
                );
            }
            let mut operands = call.target.iter().map(Box::as_ref).chain(&call.args);
            operands.try_for_each(|each| check_bounded(each, nodes_left))
        }
        _ => {
            Err("a cost expression allows only attributes, numbers, text, operators and functions".to_owned())
        }
    }
}

/// Whether the value is a text, as far as the expression shows it. Attributes are texts.
fn is_text(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(_) => true,
        Expr::Literal(literal) => matches!(literal, LiteralValue::String(_)),
        Expr::List(list) => list.elements.iter().any(is_text),
        Expr::Call(call) => match call.func_name.as_str() {
            operators::CONDITIONAL => call.args.iter().skip(1).any(is_text),
            operators::INDEX => call.args.first().is_some_and(is_text),
            operators::ADD => call.args.iter().any(is_text),
            _ => false,
        },
        _ => false,
    }
}

/// The first syntax error, without the parser's list of expected tokens.
fn syntax_error(errors: &ParseErrors) -> String {
    let Some(first) = errors.errors.iter().min_by_key(|error| error.pos) else {
        return "invalid CEL expression".to_owned();
    };
    let message = first.msg.trim_start_matches("Syntax error: ");
    let message = message.split(" expecting ").next().unwrap_or(message);
    if message.contains("Recursion limit") {
        return "the expression is nested too deeply".to_owned();
    }
    if let Some(missing) = message.strip_suffix(" at '<EOF>'") {
        return format!("the expression is incomplete: {missing}");
    }
    if message.contains("'<EOF>'") {
        return "the expression is incomplete".to_owned();
    }
    let odd = ["token recognition error at: ", "extraneous input ", "mismatched input "];
    let what = match odd.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        Some(input) => format!("unexpected {}", quote(input.trim_matches('\''))),
        None => quote(message),
    };
    let (line, column) = first.pos;
    let line = if line == 1 { String::new() } else { format!(" of line {line}") };
    format!("syntax error at character {column}{line}: {what}")
}

/// Evaluates the expression with all attributes set to `1`. Returns an error for a fault that every request would have:
/// a result that is not a whole number, or an operator that does not accept its types. Faults that depend on values are
/// left to requests.
fn check_types(program: &Program, names: &[String]) -> Result<(), String> {
    let (fault, found) = match execute(program, names, |_| "1") {
        Ok(Value::Int(_) | Value::UInt(_)) => return Ok(()),
        Ok(value) => (format!("the result is {}, expected a whole number", kind(&value)), vec![value]),
        Err(ExecutionError::UnsupportedBinaryOperator(operator, left, right)) => {
            let fault = format!("`{operator}` does not accept {} and {}", kind(&left), kind(&right));
            (fault, vec![left, right])
        }
        Err(ExecutionError::NoSuchOverload(error)) => (quote(&error.to_string()), Vec::new()),
        Err(ExecutionError::UndeclaredReference(name)) => {
            (format!("unknown name {}", quote(&name)), Vec::new())
        }
        Err(_) => return Ok(()),
    };
    if found.iter().any(|value| matches!(value, Value::String(_))) {
        Err(format!("{fault}; attributes are text, and `int(tokens)` converts one to a number"))
    } else {
        Err(fault)
    }
}

/// Names the type of a value for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Int(_) | Value::UInt(_) => "a whole number",
        Value::Float(_) => "a decimal number",
        Value::String(_) => "text",
        Value::Bool(_) => "a boolean",
        Value::List(_) => "a list",
        Value::Null => "null",
        _ => "another type",
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
    use std::time::Duration;
    use tollgate_core::rules::Cost;

    fn cost(text: &str, attributes: &Attributes<'_>) -> Option<u64> {
        let value = compile(text).unwrap();
        let priced = Cost::Expression { text: text.to_owned(), value, default: 77 }.resolve(attributes, 1);
        (!priced.failed).then_some(priced.cost)
    }

    #[test]
    fn an_expression_computes_the_cost_of_a_request() {
        let request = Attributes::new().with("tokens", "250").with("model", "large");
        assert_eq!(cost("int(tokens) / 10 + 1", &request), Some(26));
        assert_eq!(cost("model == 'large' ? 5 : 1", &request), Some(5));
        assert_eq!(cost("size(model)", &request), Some(5));
        assert_eq!(cost("max(1, min(int(tokens), 99))", &request), Some(99));
    }

    #[test]
    fn a_failing_expression_is_marked_as_failed() {
        let request = Attributes::new().with("tokens", "many");
        for text in ["int(tokens)", "int(absent)", "1 / 0", "0 - 1", "9223372036854775807"] {
            assert_eq!(cost(text, &request), None, "{text}");
        }
        // A product that overflows, a number that is no i64, and one beyond what stores count exactly.
        for tokens in ["92233720368547758", "92233720368547758070", "9007199254740992"] {
            let request = Attributes::new().with("tokens", tokens);
            assert_eq!(cost("int(tokens) * 1000", &request), None, "{tokens}");
        }
    }

    #[test]
    fn expressions_with_unbounded_time_are_errors() {
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
            &format!("size({})", "a+".repeat(200) + "a"),
            "size((a == '' ? a : a) + 'x')",
            "size([a, a][0] + [a][0])",
            "size([a] + [a])",
            &("1+".repeat(64) + "1"),
        ] {
            assert!(compile(text).is_err(), "{text}");
        }
    }

    #[test]
    fn type_faults_are_errors_and_value_faults_are_not() {
        for (text, why) in [
            ("tokens", "the result is text"),
            ("tokens // 10", "the result is text"),
            ("tokens + 1", "`add` does not accept text and a whole number"),
            ("int(tokens) * 1.5", "does not accept a whole number and a decimal number"),
            ("tokens == '1'", "the result is a boolean"),
            ("int(tokens) +", "the expression is incomplete"),
            ("max(int(tokens), 1", "the expression is incomplete: missing ')'"),
            ("int(tokens) 10", "syntax error at character 13"),
            ("round(tokens)", "unknown function `round`"),
        ] {
            let fault = compile(text).expect_err(text);
            assert!(fault.contains(why), "{text}: {fault}");
        }
        for text in ["10 / (int(tokens) - 1)", "int(tokens) - 5", "int(model)", "model == 'a' ? 2 : 1"] {
            assert!(compile(text).is_ok(), "{text}");
        }
    }

    /// The worst expressions that are allowed, on the longest values that an edge accepts.
    #[test]
    fn hostile_expressions_and_values_take_bounded_time_and_stack() {
        const VALUE_BYTES: usize = 16 * 1024;
        let (text, digits) = ("a".repeat(VALUE_BYTES), "9".repeat(VALUE_BYTES));
        let run = move || {
            let names: String = (0..60).map(|number| format!("size(v{number})+")).collect();
            let searches = "int(a.contains(b)?'1':'2')+".repeat(10);
            let expressions = [
                names[..names.len().min(500)].rsplit_once('+').unwrap().0.to_owned(),
                searches.trim_end_matches('+').to_owned(),
                "size([a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a])".to_owned(),
                "a == b ? 1 : ".repeat(30) + "2",
                "int(d) + int(d) + int(a)".to_owned(),
                "-".repeat(400) + "1",
                "!".repeat(400) + "(a == b) ? 1 : 2",
                "[".repeat(200) + "1" + &"]".repeat(200),
                "(".repeat(200) + "1" + &")".repeat(200),
                "a".to_owned() + &"[0]".repeat(160),
                "true ? ".repeat(60) + "1" + &" : 2".repeat(20),
                "int(".repeat(100) + "a" + &")".repeat(100),
            ];
            let mut attributes = Attributes::new().with("a", &text).with("d", &digits);
            let almost = "a".repeat(VALUE_BYTES / 2) + "b";
            attributes.set("b", &almost);
            for expression in &expressions {
                let compiled = fastest(|| compile(expression).is_ok());
                assert!(compiled < Duration::from_millis(200), "{expression}: {compiled:?}");
                let Ok(value) = compile(expression) else { continue };
                let cost = Cost::Expression { text: expression.clone(), value, default: 1 };
                let evaluated = fastest(|| cost.resolve(&attributes, 1).failed);
                println!("{:>10} {evaluated:?} {expression:.40}", format!("{compiled:?}"));
                assert!(evaluated < Duration::from_millis(20), "{expression}: {evaluated:?}");
            }
        };
        // Half the stack of an ordinary thread.
        std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    }

    /// The shortest of a few runs: other programs use the machine too.
    fn fastest(mut run: impl FnMut() -> bool) -> Duration {
        let times = (0..5).map(|_| {
            let started = std::time::Instant::now();
            std::hint::black_box(run());
            started.elapsed()
        });
        times.min().unwrap_or_default()
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn compile_and_evaluate_do_not_panic_on_any_text(text in "[a-z0-9 +*/()'\"\\[\\]{}.,?:<>=!&|-]{0,60}") {
            if let Ok(expression) = compile(&text) {
                let request = Attributes::new().with("a", "12").with("b", "x");
                Cost::Expression { text, value: expression, default: 1 }.resolve(&request, 1);
            }
        }
    }
}
