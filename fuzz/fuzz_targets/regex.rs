//! A regular expression, on the first line, and the text in the rest, in every
//! function that takes both.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};
use portcullis_cel::{Activation, Budget, Environment, Program, Type, Value, Version};

const COST: u64 = 200_000;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new(Version::NEWEST)
        .variable("text", Type::String)
        .variable("pattern", Type::String)
});

static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| {
    [
        "text.matches(pattern)",
        "text.find(pattern)",
        "text.findAll(pattern)",
    ]
    .map(|expression| ENVIRONMENT.compile(expression, &[]).expect("an expression"))
    .into()
});

fuzz_target!(|data: &[u8]| -> Corpus {
    let (pattern, text) = portcullis_fuzz::halves(data);
    let (Ok(pattern), Ok(text)) = (std::str::from_utf8(pattern), std::str::from_utf8(text)) else {
        return Corpus::Reject;
    };
    for program in &*PROGRAMS {
        let variables = [text, pattern].map(|text| Some(Value::String(text.to_owned().into())));
        let mut activation = Activation::with_values(&ENVIRONMENT, variables);
        let _ = program.evaluate(&mut activation, &mut Budget::new(COST));
    }
    // As a constant it is compiled with the expression.
    let mut literal = "text.matches(".to_owned();
    portcullis_cel::quote(&mut literal, pattern);
    literal.push(')');
    let _ = ENVIRONMENT.compile(&literal, &[]);
    Corpus::Keep
});
