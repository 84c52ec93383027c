//! Directories and files as programs see them, in one process and in several, with processes that die.
//!
//! This program plays all parts: with `serve DIR` it is a daemon, with `child ROLE …` another client, and otherwise it
//! runs the tests one by one. `CENOTE_SEED` replays a run; an argument selects the tests whose names contain it.

mod basics;
mod budget;
mod churn;
mod claims;
mod commit;
mod locks;
mod model;
mod page_caches;
mod reserved;
mod rng;
mod test_dir;
mod top;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use cenote_server::daemon::{self, DaemonOptions};

/// Set in the process that runs the tests, and inherited by all that it starts.
const BASE_VARIABLE: &str = "CENOTE_TEST_BASE";

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("names_and_bytes", basics::names_and_bytes),
    ("errors_have_the_numbers_of_posix", basics::errors),
    ("the_top_is_the_directory_of_containers", basics::top),
    ("unlinked_while_open", basics::unlinked_while_open),
    ("cursors_are_stable", basics::cursors),
    ("unnamed_files_are_placed", basics::unnamed),
    ("files_are_put_at_once", basics::put_at_once),
    ("unnamed_files_of_many_threads", basics::unnamed_in_threads),
    ("times_are_those_of_the_clock", basics::times),
    ("attributes", basics::xattrs),
    ("ranges", basics::ranges),
    ("fsync_on_memory_alone_says_done", basics::synced_in_memory),
    ("two_sessions_are_as_the_model", model::strict),
    ("a_commit_directory_is_seen_when_it_is_published", commit::seen_when_published),
    ("one_file_made_twice_is_one", commit::one_file_made_twice),
    ("what_another_took_away_is_not_in_the_way", commit::emptied_by_another),
    ("names_are_gathered_while_others_are_published", commit::gathered_while_published),
    ("many_files_that_another_has_seen_go_at_once", claims::many_go_at_once),
    ("claims_are_given_up_and_taken_again", claims::claims_are_given_up),
    ("a_file_that_is_placed_while_it_is_open_stays", claims::placed_while_open),
    ("files_are_put_over_one_another", claims::put_over_one_another),
    ("attributes_go_with_their_file", claims::attributes_go_with_their_file),
    ("two_sessions_that_commit_are_as_the_model", model::commit),
    ("threads_at_random", churn::threads),
    ("files_and_directories_of_one_name", churn::directories_beside),
    ("a_forked_child_has_open_what_its_parent_had", churn::forked),
    ("what_is_lost_is_said_to_who_made_it", churn::lost_before_a_fork),
    ("children_do_not_wait_for_threads_of_their_parents", churn::forked_amid_threads),
    ("directories_at_the_top_are_seen_whole", top::seen_whole),
    ("a_directory_at_the_top_goes_while_a_file_is_closed", top::goes_while_a_file_is_closed),
    ("what_is_laminated_stays_as_it_is", top::laminated),
    ("ranges_are_shared", top::shared_ranges),
    ("locks_have_owners", locks::owners),
    ("locks_end_with_their_processes", locks::killed),
    ("space_that_is_kept_is_there", reserved::written),
    ("space_that_is_kept_comes_back", reserved::given_back),
    ("space_that_cannot_be_kept_is_refused", reserved::refused),
    ("space_that_is_kept_counts_as_taken", reserved::counted),
    ("space_that_is_kept_is_cut", reserved::cut),
    ("space_that_is_kept_leaves_a_tier_that_is_emptied", reserved::left),
    ("page_caches_are_shared", page_caches::shared),
    ("page_caches_that_have_no_room_say_so", page_caches::no_room),
    ("times_that_are_set_while_page_caches_are_put_back", page_caches::times),
    ("page_caches_of_processes_that_are_killed", page_caches::killed),
    ("page_caches_that_only_a_killed_process_had_seen", page_caches::killed_unseen),
    ("page_caches_at_random", page_caches::random),
    ("messages_of_each_call", budget::messages),
    ("killed_in_the_middle_strict", churn::strict),
    ("killed_in_the_middle_commit", churn::commit),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("serve") => serve(&args[1..]),
        Some("child") => {
            match args[1].as_str() {
                "lock" => locks::child(&args[2..]),
                "page-cache" => page_caches::child(&args[2..]),
                _ => churn::child(&args[2..]),
            }
            ExitCode::SUCCESS
        }
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

/// Runs this program again with its own directories, and cleans up afterwards.
fn with_a_place(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let me = std::env::current_exe().unwrap();
    let base = std::env::temp_dir().join(format!("cenote-files-{}", std::process::id()));
    let shm = std::path::Path::new("/dev/shm").join(base.file_name().unwrap());
    std::fs::create_dir_all(&base).unwrap();
    std::fs::create_dir_all(&shm).unwrap();
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
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let begin = Instant::now();
        let outcome = std::panic::catch_unwind(test);
        failed += usize::from(outcome.is_err());
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.1} s)", begin.elapsed().as_secs_f64());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
