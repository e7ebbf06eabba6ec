//! What the gateway makes of generated input, and what Kubernetes' own code
//! makes of it.
//!
//! `tests/oracle/build` makes the program that answers for Kubernetes. Where it
//! is missing, each test counts as ignored; with `PORTCULLIS_REQUIRE_ORACLE=1` it fails.
//!
//! What is generated depends on a seed alone: `PORTCULLIS_ORACLE_SEED`, 1 unless
//! set. `PORTCULLIS_ORACLE_CASES` says how many cases each test generates.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod answers;
mod cel;
mod differences;
mod failures;
mod grammar;
#[path = "../harness/inner.rs"]
mod inner;
mod objects;
mod outcome;
mod pod_security;
mod program;
mod random;
mod regex;
#[path = "../harness/reviews.rs"]
mod reviews;
mod tables;
#[path = "../harness/trials.rs"]
mod trials;
#[path = "../cel/variables.rs"]
mod variables;
mod written;
mod yaml;

use trials::{Test, tests};

/// Each test: one that is not here is never used, which the compiler reports.
const TESTS: &[Test] = tests![
    answers::answers_come_in_the_order_of_the_questions,
    answers::each_kubernetes_answers_for_its_own_version,
    answers::every_subject_answers,
    cel::every_difference_of_the_table_is_still_one,
    cel::random_expressions_are_what_kubernetes_1_34_and_1_35_make_of_them,
    cel::random_expressions_are_what_kubernetes_1_36_makes_of_them,
    cel::random_expressions_are_what_kubernetes_1_37_makes_of_them,
    cel::the_grammar_calls_every_function_of_kubernetes,
    failures::failures_of_the_tables_are_told_in_the_words_of_kubernetes,
    objects::changed_objects_are_what_their_go_types_make_of_them,
    pod_security::every_control_says_of_which_version_it_is,
    pod_security::generated_pods_are_refused_by_the_controls_that_refuse_them_in_kubernetes,
    regex::every_pattern_of_the_tables_is_read_as_go_reads_it,
    regex::random_patterns_are_read_as_go_reads_them,
    tables::the_unicode_tables_are_those_of_go,
    yaml::every_example_is_read_as_kubectl_reads_it,
    yaml::generated_documents_are_read_as_kubectl_reads_them,
];

fn main() {
    trials::run(TESTS, &[])
}
