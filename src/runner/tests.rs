use super::*;

fn sh(script: &str, deadline: Duration) -> Step {
    let argv = ["/bin/sh", "-c", script].map(String::from).to_vec();
    Step { program: Program::Command(argv), env: vec![], stdin: "hello\n".into(), deadline, cpus: vec![] }
}

/// Runs the step; what an unfinished one had said is looked at in its evidence.
async fn run(step: &Step, stop: &Stop) -> (Result<Output, Failure>, Evidence) {
    let (result, evidence) = super::run(step, stop).await;
    (result.map_err(|unfinished| unfinished.failure), evidence)
}

fn free() -> Stop {
    Stop::at_shutdown(CancellationToken::new())
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

/// A number of seconds that marks a `sleep` of this test and of no other.
fn mark(test: u32) -> String {
    format!("{}.{test}", 1000 + std::process::id())
}

fn alive(mark: &str) -> bool {
    procfs::process::all_processes().unwrap().flatten().any(|process| {
        process.stat().is_ok_and(|stat| stat.state != 'Z')
            && process.cmdline().is_ok_and(|cmdline| cmdline.iter().any(|word| word == mark))
    })
}

#[tokio::test]
async fn both_streams_and_standard_input_are_connected() {
    let (output, evidence) = run(&sh("cat; echo no >&2", LONG), &free()).await;
    let output = output.unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("hello\n", "no\n"));
    assert_eq!((evidence.exit.as_str(), evidence.stderr.as_str()), ("exit 0", "no\n"));
}

#[tokio::test]
async fn a_child_sees_only_what_it_needs_of_the_environment() {
    let output = run(&sh("env | cut -d= -f1 | sort | xargs", LONG), &free()).await.0.unwrap();
    assert_eq!(output.stdout.trim(), "LC_ALL PATH PWD");
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    for (script, status) in [("exit 3", "exit 3"), ("kill -9 $$", "signal 9")] {
        let failure = run(&sh(script, LONG), &free()).await.0.unwrap_err();
        let exit = Failure::Exit { program: "/bin/sh".into(), status: status.into(), says: String::new() };
        assert_eq!(failure, exit);
    }
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let step = Step { program: Program::Command(vec!["/no/such/tool".into()]), ..sh("", LONG) };
    let failure = run(&step, &free()).await.0.unwrap_err();
    assert!(matches!(&failure, Failure::Spawn { program, .. } if program == "/no/such/tool"), "{failure:?}");
}

#[tokio::test]
async fn a_deadline_takes_the_grandchildren_too_and_keeps_what_was_said() {
    let mark = mark(1);
    let (result, evidence) =
        run(&sh(&format!("echo partial; sleep {mark} & sleep {mark}"), SHORT), &free()).await;
    assert!(matches!(result, Err(Failure::TimedOut { .. })), "{result:?}");
    assert_eq!(evidence.stdout, "partial\n");
    assert!(!alive(&mark));
}

#[tokio::test]
async fn a_child_that_ignores_term_is_killed() {
    let mark = mark(2);
    let started = Instant::now();
    let script = format!("trap '' TERM; sleep {mark} & while :; do wait; done");
    let result = run(&sh(&script, SHORT), &free()).await.0;
    assert!(matches!(result, Err(Failure::TimedOut { .. })), "{result:?}");
    assert!(started.elapsed() >= SHORT + GRACE, "it was given its grace");
    assert!(!alive(&mark));
}

#[tokio::test]
async fn a_flood_is_read_to_its_end_but_not_kept() {
    let script = "head -c 30000000 /dev/zero | tr '\\0' x; echo done >&2";
    let output = run(&sh(script, LONG), &free()).await.0.unwrap();
    assert_eq!((output.stdout.len(), output.stderr.as_str()), (CAPTURE, "done\n"));
}

#[tokio::test]
async fn a_flood_does_not_hold_up_the_deadline() {
    let started = Instant::now();
    let result = run(&sh("trap '' TERM; while :; do echo flood; done", SHORT), &free()).await.0;
    assert!(matches!(result, Err(Failure::TimedOut { .. })), "{result:?}");
    assert!(started.elapsed() < SHORT + GRACE + KILL_GRACE);
}

#[tokio::test]
async fn an_orphan_in_the_group_that_keeps_the_pipe_is_swept_away() {
    let mark = mark(3);
    let started = Instant::now();
    let output = run(&sh(&format!("echo mine; sleep {mark} &"), LONG), &free()).await.0.unwrap();
    assert_eq!(output.stdout, "mine\n");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert!(!alive(&mark));
}

#[tokio::test]
async fn an_orphan_that_left_the_group_with_the_pipe_is_not_waited_for() {
    let mark = mark(4);
    let started = Instant::now();
    let output = run(&sh(&format!("echo mine; setsid sleep {mark} &"), LONG), &free()).await.0.unwrap();
    assert_eq!(output.stdout, "mine\n");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let _ = run(&sh(&format!("pkill -KILL -f 'sleep {mark}'"), LONG), &free()).await;
}

#[tokio::test]
async fn closing_the_output_early_is_not_the_end() {
    let started = Instant::now();
    let output = run(&sh("echo early; exec >&- 2>&-; sleep 0.3", LONG), &free()).await.0.unwrap();
    assert_eq!(output.stdout, "early\n");
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn saying_nothing_is_an_empty_output_and_no_failure_of_the_runner() {
    let output = run(&sh("exit 0", LONG), &free()).await.0.unwrap();
    assert_eq!(output.stdout, "");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it stands in for a child that SIGKILL can't end")]
async fn a_program_with_too_many_stuck_children_is_not_started_until_one_is_gone() {
    let step = Step { program: Program::Command(vec!["/bin/echo".into(), "again".into()]), ..sh("", LONG) };
    let argv = argv(&step.program);
    let mut children = Vec::new();
    for _ in 0..MOST_STUCK {
        assert_eq!(run(&step, &free()).await.0.unwrap().stdout, "again\n");
        let child = Command::new("/bin/sleep").arg("600").process_group(0).spawn().unwrap();
        remember_stuck(&argv, child.id().and_then(|id| Pid::from_raw(i32::try_from(id).unwrap())));
        children.push(child);
    }
    let (result, evidence) = run(&step, &free()).await;
    assert!(matches!(result, Err(Failure::Stuck { .. })), "{result:?}");
    assert!(evidence.exit.starts_with("not started: "), "{evidence:?}");
    for mut child in children {
        child.kill().await.unwrap();
    }
    assert_eq!(run(&step, &free()).await.0.unwrap().stdout, "again\n");
}

#[tokio::test]
async fn a_shutdown_leaves_no_process_behind() {
    let mark = mark(5);
    let stop = free();
    let step = sh(&format!("sleep {mark} & sleep {mark}"), LONG);
    let (result, ()) = tokio::join!(async { run(&step, &stop).await.0 }, async {
        sleep(SHORT).await;
        stop.shutdown.cancel();
    });
    assert_eq!(result, Err(Failure::Cancelled { by: CancelledBy::Shutdown }));
    assert!(!alive(&mark));
}

#[tokio::test]
async fn a_shorter_deadline_of_the_caller_is_a_cancellation() {
    let stop = Stop { caller: Some(Instant::now() + SHORT), ..free() };
    let result = run(&sh("sleep 100", LONG), &stop).await.0;
    assert_eq!(result, Err(Failure::Cancelled { by: CancelledBy::Caller }));
}
