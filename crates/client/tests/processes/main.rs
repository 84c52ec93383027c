//! The client's API in both modes, and stores shared by several processes of which some die.
//!
//! This program plays all roles: with `serve DIR` it is a daemon, with `child ROLE …` another client, and otherwise it
//! runs the tests, one after the other. `CENOTE_SEED` replays a run; a name as argument selects the tests that contain
//! it.
#![allow(unsafe_code, reason = "fork, and signals to processes that this one started")]

mod across;
mod api;
mod bad;
mod child;
mod engines;
mod figures;
mod files;
mod given_back;
mod gone;
mod lives;
mod moving;
mod others;
mod packed;
mod pipelined;
mod redo_log;
mod refused;
mod remember;
mod rights;
mod tiers;
mod tools;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use cenote_server::daemon::{self, DaemonOptions};

/// Set in the process that runs the tests, and inherited by its children.
const BASE_VARIABLE: &str = "CENOTE_TEST_BASE";

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("api_in_process", api::in_process),
    ("api_through_a_daemon", api::through_a_daemon),
    ("figures_in_process", figures::in_process),
    ("figures_through_a_daemon", figures::through_a_daemon),
    ("several_engines_in_process", engines::in_process),
    ("several_engines_through_a_daemon", engines::through_a_daemon),
    ("several_engines_and_a_daemon_that_dies", engines::daemon_dies),
    ("several_engines_are_handed_over", engines::handover),
    ("several_engines_are_cloned", engines::cloned),
    ("transactions_over_engines_in_process", across::in_process),
    ("transactions_over_engines_through_a_daemon", across::through_a_daemon),
    ("transactions_over_engines_that_are_launched", across::launched_and_killed),
    ("transactions_over_engines_when_everybody_dies", across::everybody_dies),
    ("pipelined_writes_come_first", api::pipelined_first),
    ("random_writes_in_process", api::random_in_process),
    ("random_writes_through_a_daemon", api::random_through_a_daemon),
    ("bad_input_is_refused", bad::bad_input),
    ("opening_wrongly", bad::opening_wrongly),
    ("a_full_store_says_so", bad::full_store),
    ("flipped_bits_on_a_file_tier_are_found", bad::flipped_bits),
    ("what_transactions_refuse_leaves_nothing", refused::by_transactions),
    ("conditions_that_do_not_hold_change_nothing", refused::on_conditions),
    ("snapshots_refuse_names_and_wrong_conditions", refused::by_snapshots),
    ("containers_that_are_not_there_are_told", refused::of_containers),
    ("indices_refuse_and_take_more_than_a_message", refused::of_indices),
    ("objects_refuse_what_cannot_be", refused::of_objects),
    ("readers_change_nothing_and_may_look_at_what_would_be_done", refused::to_readers),
    ("a_session_that_ended_does_nothing_more", refused::after_the_end),
    ("tiers_leave_while_space_of_them_is_kept", refused::tiers_that_leave),
    ("what_is_known_in_parts_is_told_whole", refused::known_in_parts),
    ("two_processes_see_each_other", others::visibility),
    ("a_store_is_handed_over", others::handover),
    ("a_second_store_in_one_process", others::twice_in_one_process),
    ("what_is_remembered_is_never_old", remember::never_old),
    ("what_is_remembered_is_checked", remember::conflicts),
    ("starters_race", others::starters_race),
    ("readers_cannot_write", others::readers),
    ("a_second_user_gets_its_own_bytes_alone", rights::second_user),
    ("hostile_bytes_on_socket_and_ring", others::hostile),
    ("a_stopped_client_harms_nobody", others::stopped_client),
    ("clients_cut_their_files", others::cut_files),
    ("stop_and_idle_exit", others::stop_and_idle),
    ("a_daemon_dies_in_the_middle", lives::daemon_dies),
    ("clients_die", lives::clients_die),
    ("safe_pipelined_changes_survive_their_client", redo_log::by_a_daemon),
    ("safe_pipelined_changes_survive_the_engine", redo_log::in_process),
    ("fork_with_a_daemon", lives::fork_with_a_daemon),
    ("fork_in_process", lives::fork_in_process),
    ("closing", lives::closing),
    ("reads_bring_what_is_slow", moving::reads_bring),
    ("moved_while_it_is_used", moving::moved_while_used),
    ("modes_per_call", moving::modes_per_call),
    ("learned_by_the_next_run", moving::learned_by_the_next_run),
    ("leased_space_goes_back", given_back::leased_space),
    ("what_views_held_is_free_after_them", given_back::what_views_held),
    ("deleted_snapshots_stay_for_their_handles_alone", given_back::deleted_snapshots),
    ("a_transaction_writes_in_several_pieces", given_back::written_in_pieces),
    ("pins_end", remember::pins_end),
    ("what_is_compressed_is_read_in_parts", packed::read_in_parts),
    ("persistent_memory_without_dax", tiers::persistent_memory),
    ("persistent_memory_cut_short", tiers::persistent_memory_cut_short),
    ("tiers_are_measured_when_asked", tiers::measured_when_asked),
    ("tiers_are_measured_when_idle", tiers::measured_when_idle),
    ("pipelined_writes_and_transactions_are_read_in_order", pipelined::read_in_order),
    ("changes_pipelined_after_a_broken_pin_are_read", pipelined::read_in_order_without_a_pin),
    ("sizes_and_holes_are_known", files::sizes_and_holes),
    ("appending", files::appending),
    ("appending_together_while_the_daemon_dies", files::appending_together),
    ("empty_directories", files::empty_directories),
    ("sharing_ranges", files::sharing),
    ("small_files_cost_a_message", files::small_files),
    ("a_directory_that_is_removed_is_noticed_in_process", gone::removed_in_process),
    ("a_session_stays_with_its_store", gone::stays_with_its_store),
    ("memory_that_is_deleted_under_a_daemon_is_named", gone::memory_removed_under_its_daemon),
    ("attempts_back_off", gone::attempts_back_off),
    ("daemons_are_killed_while_they_start", gone::killed_starting),
    ("daemons_are_killed_soon_after_they_start", gone::killed_soon_after_starting),
    ("a_stopped_daemon_has_let_go", gone::stopped_has_let_go),
    ("who_has_the_store_is_named", gone::holder_is_named),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("serve") => serve(&args[1..]),
        Some("child") => child::run(&args[1], &args[2..]),
        _ if std::env::var_os(BASE_VARIABLE).is_some() => run_tests(&args),
        _ => with_a_place(&args),
    }
}

fn serve(args: &[String]) -> ExitCode {
    let mut options = DaemonOptions::default();
    let mut rest = args[1..].iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--background" => options.background = true,
            "--create" => options.create = true,
            _ => options.idle_exit = rest.next().and_then(|text| text.parse().ok()).map(Duration::from_secs),
        }
    }
    match daemon::run(args[0].as_ref(), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this program again with its own directories, and removes them afterwards.
fn with_a_place(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let me = std::env::current_exe().unwrap();
    let base = std::env::temp_dir().join(format!("cenote-client-{}", std::process::id()));
    let shm = std::path::Path::new("/dev/shm").join(base.file_name().unwrap());
    std::fs::create_dir_all(&base).unwrap();
    std::fs::create_dir_all(&shm).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&base, open).unwrap();
    let status = Command::new(&me)
        .args(args)
        .env(BASE_VARIABLE, &base)
        .env("CENOTE_SHM_DIR", &shm)
        .env("CENOTE_BIN", &me)
        .env("CENOTE_IDLE_EXIT", "2")
        .status()
        .unwrap();
    let _ = std::fs::remove_dir_all(&base);
    let _ = std::fs::remove_dir_all(&shm);
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_tests(args: &[String]) -> ExitCode {
    println!("CENOTE_SEED={}", tools::seed());
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let begin = Instant::now();
        let outcome = std::panic::catch_unwind(test);
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.2} s)", begin.elapsed().as_secs_f64());
        failed += usize::from(outcome.is_err());
    }
    println!("{failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
