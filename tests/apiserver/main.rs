//! Portcullis and a real kube-apiserver.
//!
//! `tests/apiserver/build` makes the programs, or `KUBEBUILDER_ASSETS` names
//! the folder that holds them. Where they are missing, each test
//! counts as ignored; with `PORTCULLIS_REQUIRE_APISERVER=1` it fails.
//!
//! They use the newest version. For the oldest, `tests/apiserver/build 1.36` writes its programs into
//! `target/apiserver-1.36`, and `KUBEBUILDER_ASSETS="$PWD/target/apiserver-1.36" cargo test --test apiserver NAME`
//! runs the tests whose names begin so; `just apiserver-both` runs all of both.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod access_requests;
mod admission;
mod authorizers;
mod binaries;
mod builtin_roles;
mod callers;
mod cluster;
mod cluster_source;
mod control_plane;
mod decisions;
mod differential;
mod excluded;
mod failures;
mod grants;
mod hostile;
mod impersonation;
mod in_cluster;
mod installs;
mod lease;
mod legacy;
mod limits;
mod live;
mod managed;
mod never_deny;
mod not_run;
mod reload;
mod renewal;
mod routes;
mod scenario;
mod schema;
mod selectors;
mod services;
mod static_manifests;
#[path = "../harness/trials.rs"]
mod trials;
mod tutorials;
mod watch_set_up;
mod webhooks;

use trials::{Test, tests};

/// Each test: one that is not here is never used, which the compiler reports.
const TESTS: &[Test] = tests![
    access_requests::a_deny_is_lifted_where_whoever_approves_may_lift_it,
    access_requests::a_role_that_was_asked_for_and_approved_is_there_until_it_is_withdrawn,
    access_requests::nobody_approves_their_own_or_in_the_name_of_others,
    access_requests::what_is_asked_for_never_changes_and_entries_are_only_added,
    admission::as_sent::a_custom_resource_of_thousands_of_levels_is_judged,
    admission::as_sent::bytes_that_are_no_text_are_judged_and_patched_as_they_are,
    admission::custom_resources::a_custom_resource_is_applied_by_the_server_or_denied,
    admission::custom_resources::a_custom_resource_is_created_mutated_or_denied,
    admission::custom_resources::a_custom_resource_is_deleted_or_kept,
    admission::custom_resources::a_custom_resource_is_scaled_or_not,
    admission::custom_resources::an_update_of_a_custom_resource_is_compared_with_the_old_one,
    admission::differential::random_requests_come_out_as_by_the_policies_of_the_api_server,
    admission::pods::a_command_in_a_pod_is_let_through_or_denied,
    admission::pods::a_deployment_is_scaled_or_not,
    admission::pods::a_dry_run_is_judged_and_stores_nothing,
    admission::pods::a_pod_is_applied_by_the_server_or_denied,
    admission::pods::a_pod_is_created_or_denied,
    admission::pods::a_pod_is_deleted_or_kept,
    admission::pods::a_pod_is_stored_as_the_patch_makes_it,
    admission::pods::a_warning_reaches_the_user,
    admission::pods::an_update_of_a_pod_is_denied_and_mutated,
    admission::pods::the_mutating_plugin_proves_itself_by_password,
    admission::pods::the_validating_plugin_proves_itself_by_certificate,
    admission::pods::the_validating_plugin_proves_itself_by_token,
    authorizers::a_user_of_the_api_server_is_let_in_by_one_behind_the_gateway,
    authorizers::they_are_asked_and_decide_as_if_the_api_server_asked_them_itself,
    builtin_roles::the_builtin_roles_are_those_of_the_newest_api_server,
    builtin_roles::the_builtin_roles_are_those_of_the_oldest_api_server,
    callers::a_client_certificate_names_the_caller_by_common_name,
    callers::a_json_web_token_names_the_caller,
    callers::reviews_in_v1_are_answered_in_v1,
    callers::reviews_in_v1beta1_are_answered_in_v1beta1,
    callers::the_certificate_of_a_kubeconfig_names_the_caller,
    callers::the_password_of_a_kubeconfig_names_the_caller,
    callers::the_token_file_of_a_kubeconfig_names_the_caller,
    callers::the_token_of_a_kubeconfig_names_the_caller,
    cluster_source::admission::only_selected_policies_are_run_for_namespaces_as_they_are_labelled,
    cluster_source::admission::parameters_are_followed_as_soon_as_a_policy_takes_them,
    cluster_source::connections::a_token_file_that_is_replaced_counts_while_the_watches_go_on,
    cluster_source::connections::all_watches_by_a_client_certificate_share_one_connection_and_find_a_restarted_api_server,
    cluster_source::definition::every_shipped_policy_is_accepted,
    cluster_source::definition::kubectl_shows_effect_and_mode,
    cluster_source::definition::what_no_gateway_would_take_is_refused,
    cluster_source::exceptions::nobody_writes_exceptions_by_admin_or_edit,
    cluster_source::exceptions::watched_exceptions_are_taken_where_the_configuration_says_so,
    cluster_source::labels::a_label_that_changes_counts_as_soon_as_the_watch_tells,
    cluster_source::objects::a_collection_is_deleted_at_once,
    cluster_source::objects::a_deny_edited_into_nonsense_keeps_denying,
    cluster_source::objects::a_policy_of_the_api_server_decides_its_own_requests,
    cluster_source::objects::a_watch_that_breaks_goes_on_where_it_was,
    cluster_source::objects::kubectl_manages_the_roles_that_the_gateway_decides_by,
    cluster_source::objects::policies_of_the_files_hold_beside_those_of_the_api_server,
    cluster_source::older_definition::no_limit_that_an_older_definition_drops_widens_a_grant_or_an_exception,
    cluster_source::saved::a_changed_kubeconfig_is_used_and_a_removed_cluster_forgotten_without_a_restart,
    cluster_source::saved::a_damaged_file_is_told_of_and_not_used,
    cluster_source::saved::what_was_saved_decides_until_the_api_server_is_there,
    cluster_source::scopes::a_deny_by_namespace_leaves_lists_of_cluster_scoped_custom_resources,
    cluster_source::status::the_status_says_whether_an_object_is_in_force,
    cluster_source::told_at_once::who_writes_policies_and_exceptions_is_told_at_once,
    cluster_source::two_clusters::objects_of_two_api_servers_stay_apart,
    cluster_source::webhooks::kubectl_manages_the_webhooks_behind_the_gateway,
    control_plane::a_deployment_becomes_bound_pods_whatever_the_gateway_does,
    control_plane::a_job_runs_its_course_whatever_the_gateway_does,
    control_plane::a_namespace_is_deleted_to_the_end_whatever_the_gateway_does,
    control_plane::aggregation_of_cluster_roles_holds_whatever_the_gateway_does,
    control_plane::garbage_is_collected_whatever_the_gateway_does,
    control_plane::kubelets_serve_logs_and_exec_whatever_the_gateway_does,
    control_plane::leases_are_renewed_whatever_the_gateway_does,
    control_plane::policies_are_enforced_and_requests_are_refused_during_an_outage,
    control_plane::probes_of_the_api_server_succeed_whatever_the_gateway_does,
    control_plane::service_account_tokens_are_made_whatever_the_gateway_does,
    control_plane::the_users_that_check_protects_are_those_in_the_audit_log,
    control_plane::without_a_gateway_an_administrator_can_recover_the_cluster,
    decisions::a_deny_beats_rbac,
    decisions::a_deny_reaches_whoever_asks_for_everything,
    decisions::an_allow_lets_the_request_through,
    decisions::impersonation_is_allowed_for_the_names_that_a_rule_lists,
    decisions::kubectl_auth_can_i_sees_the_answers,
    decisions::no_opinion_falls_through_to_rbac,
    decisions::non_resource_paths_are_allowed_and_denied,
    decisions::the_answers_rule_kubectl,
    decisions::who_is_allowed_by_nobody_is_not_told_why,
    differential::an_api_server_without_webhook_rules_by_its_own_rbac,
    differential::random_reviews_are_answered_as_by_the_rbac_of_the_api_server,
    differential::the_roles_that_kubernetes_aggregates_are_aggregated,
    excluded::token_and_access_reviews_come_to_no_webhook,
    failures::a_certificate_of_another_authority_is_refused_and_fails_under_deny,
    failures::a_certificate_of_another_authority_is_refused_and_falls_through_under_no_opinion,
    failures::a_gateway_that_is_down_fails_under_deny,
    failures::a_gateway_that_is_down_falls_through_under_no_opinion,
    failures::who_shows_no_known_certificate_is_refused,
    grants::a_command_is_run_only_where_the_conditions_allow_it,
    grants::a_deny_with_conditions_refuses_what_meets_them,
    grants::a_pod_is_created_only_with_an_image_that_the_conditions_allow,
    grants::a_removed_allow_leaves_no_time_in_which_anything_passes,
    grants::an_update_a_patch_and_an_apply_must_meet_them_too,
    grants::an_authorizer_behind_the_gateway_is_asked_before_a_refusal,
    grants::users_write_and_delete_what_carries_their_name_alone,
    grants::what_rbac_grants_passes_whatever_the_object_is,
    hostile::a_mebibyte_of_field_selectors_does_not_make_a_review_fail,
    hostile::a_mebibyte_of_label_selectors_does_not_make_a_review_fail,
    hostile::an_empty_key_in_a_field_selector_does_not_make_a_review_fail,
    hostile::odd_names_and_selectors_do_not_make_a_review_fail,
    impersonation::a_deny_on_the_legacy_verb_alone_is_passed_by_a_constrained_mode,
    impersonation::a_mode_asks_about_the_request_and_about_whoever_is_impersonated,
    impersonation::a_service_account_is_asked_about_in_its_namespace,
    impersonation::whoever_may_impersonate_a_node_passes_every_deny,
    in_cluster::kubectl_apply_k_installs_the_gateway_without_any_key_that_it_does_not_need,
    installs::a_static_pod_a_deployment_and_what_init_writes_run_the_same,
    installs::an_api_server_takes_every_overlay,
    installs::chart::one_command_installs_it_and_the_notes_work_as_typed,
    installs::helm::an_api_server_takes_every_way_of_the_chart,
    installs::helm::helm_finds_no_fault_in_the_chart,
    installs::helm::the_chart_brings_the_definitions_and_roles_of_the_project,
    installs::helm::the_chart_configures_the_gateway_as_init_does,
    installs::helm::the_chart_registers_as_init_does,
    installs::helm::the_chart_runs_what_init_and_the_overlay_run,
    installs::helm::the_console_is_on_loopback_unless_callers_may_see_it,
    installs::helm::the_level_of_the_chart_is_for_namespaces_without_a_label,
    installs::helm::the_overlay_of_admission_installs_what_the_chart_installs,
    installs::helm::values_that_cannot_work_are_refused_with_the_remedy,
    installs::only_host_network_and_loopback_probes_are_more_than_restricted_allows,
    installs::the_component_watch_binds_the_service_account,
    installs::the_secrets_of_init_are_those_that_the_manifests_mount,
    legacy::the_older_flag_asks_in_v1,
    legacy::the_older_flag_asks_in_v1beta1_by_default,
    limits::a_request_must_lie_within_each_limit_of_its_user,
    limits::kubectl_works_within_it,
    limits::nothing_that_rbac_grants_is_beyond_it,
    live::a_cluster_is_scanned_page_by_page_and_reports_are_written,
    live::a_definition_in_manifests_is_no_match_for_what_the_cluster_serves,
    live::as_the_plugin_of_kubectl_it_asks_the_cluster_of_the_context,
    live::escalations_name_pods_that_run_and_policies_that_refuse_others,
    live::manifests_are_judged_by_the_policies_of_the_cluster,
    live::the_files_of_the_gateway_and_the_cluster_answer_together,
    live::who_can_and_what_can_read_rbac_and_denies_of_the_cluster,
    live::who_lacks_a_permission_is_told_which,
    managed::a_token_that_the_api_server_makes_is_for_its_configuration_and_groups,
    managed::writes_are_denied_by_admission_where_the_api_server_asks_no_webhook,
    never_deny::a_deny_applies_to_users_that_only_resemble_the_control_plane,
    never_deny::no_deny_applies_to_the_control_plane,
    never_deny::no_deny_reaches_the_probes,
    not_run::without_the_programs_a_test_is_ignored_and_fails_where_they_are_required,
    reload::the_next_request_is_decided_by_the_policies_just_loaded,
    renewal::certificates_are_renewed_under_load_without_losing_a_request,
    schema::contained::what_is_missing_is_found,
    schema::every_type_and_resource_of_the_api_server_is_in_the_tables,
    schema::the_tables_are_what_the_api_servers_of_all_versions_say_together,
    selectors::a_deletion_of_many_is_allowed_when_its_label_selector_is_narrow_enough,
    selectors::a_deny_spares_a_list_whose_field_selector_is_narrow_enough,
    selectors::a_deny_spares_a_list_whose_label_selector_is_narrow_enough,
    selectors::a_list_is_allowed_when_its_field_selector_is_narrow_enough,
    selectors::a_list_is_allowed_when_its_label_selector_is_narrow_enough,
    services::an_api_server_spreads_its_calls_over_the_replicas_behind_a_service,
    static_manifests::a_changed_registration_is_read_again_and_a_faulty_one_changes_nothing,
    static_manifests::a_request_comes_to_the_gateway_once_for_each_phase,
    static_manifests::an_api_server_starts_with_static_registrations_while_no_gateway_answers,
    static_manifests::only_static_policies_of_the_gateway_judge_policies_and_bindings,
    static_manifests::static_registrations_cannot_be_removed_through_the_api,
    tutorials::what_the_chapters_on_access_show_is_what_a_reader_sees,
    watch_set_up::the_commands_that_init_prints_let_the_gateway_know_the_rbac_of_its_cluster,
    webhooks::between::between_webhooks_the_api_server_defaults_and_prunes_and_the_gateway_does_not,
    webhooks::past::a_webhook_of_kubernetes_1_7_is_asked_in_v1alpha1,
    webhooks::same::webhooks_behind_the_gateway_decide_as_those_of_the_api_server,
];

/// Those that are run only where they are asked for, with `--ignored`.
const SLOW: &[Test] =
    tests![renewal::the_authority_is_renewed_at_an_api_server_s_own_pace_and_no_request_is_lost,];

fn main() {
    trials::run(TESTS, SLOW)
}
