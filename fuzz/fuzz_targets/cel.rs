//! An expression, on the first line, about the object in the rest.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};
use portcullis_cel::{Activation, Budget, Environment, Type, Value, Version};
use portcullis_cel::json::Document;

/// Enough for every function, and little enough for many runs.
const COST: u64 = 200_000;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new(Version::NEWEST)
        .variable("object", Type::Dyn)
        .variable("name", Type::String)
        .mutation()
});

fuzz_target!(|data: &[u8]| -> Corpus {
    let (expression, object) = portcullis_fuzz::halves(data);
    let Ok(expression) = std::str::from_utf8(expression) else {
        return Corpus::Reject;
    };
    let Ok(program) = ENVIRONMENT.compile(expression, &[]) else {
        return Corpus::Keep;
    };
    let document = Document::parse_bytes(object).ok();
    let object = document.as_ref().map(|document| Value::json(document.root()));
    let name = Value::String("name".to_owned().into());
    let mut activation = Activation::with_values(&ENVIRONMENT, [object, Some(name)]);
    let _ = program.evaluate(&mut activation, &mut Budget::new(COST));
    Corpus::Keep
});
