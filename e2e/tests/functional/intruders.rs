//! What another user can do with a program of root's: nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::calibration;
use hetckpt_e2e::executable;
use hetckpt_e2e::hetckpt::{self, PATIENCE};
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::plain_criu::{ensure_same, start_paced};
use hetckpt_e2e::process::{Outcome, Running};
use hetckpt_e2e::program::PACED;
use hetckpt_e2e::runner::{Context, Test};
use hetckpt_e2e::sandbox::Sandbox;
use tempfile::TempDir;

/// `nobody` and `nogroup`, or whatever has the number: it owns nothing that is needed here.
const STRANGER: u32 = 65_534;

/// Connects to a socket, says nothing, and tells whether the other end hangs up before it has waited for a while.
const CONNECT: &str = r#"
use Socket;
socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
connect($s, pack_sockaddr_un($ARGV[0])) or print("refused: $!\n"), exit;
my $read = '';
vec($read, fileno($s), 1) = 1;
print(select($read, undef, undef, $ARGV[1]) && !sysread($s, my $byte, 1) ? "hung up\n" : "kept\n");
"#;

/// The tests.
pub fn tests() -> Vec<Test> {
    let tests = vec![
        Test::new("another_user_cannot_dump_or_pause", cannot_dump_or_pause),
        Test::new("another_user_cannot_connect_to_a_server", cannot_connect),
    ];
    let as_root = |test: Test| test.also_needs(Requirement::Root);
    tests.into_iter().map(as_root).collect()
}

/// A place that the stranger can reach, with a folder of theirs and `hetckpt`.
struct Reach {
    folder: TempDir,
}

impl Reach {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("hk-reach-").tempdir()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let reach = Self { folder };
        executable::copy(&Installation::get().hetckpt(), &reach.hetckpt())?;
        fs::create_dir(reach.own())?;
        std::os::unix::fs::chown(reach.own(), Some(STRANGER), Some(STRANGER))?;
        Ok(reach)
    }

    fn hetckpt(&self) -> PathBuf {
        self.folder.path().join("hetckpt")
    }

    fn own(&self) -> PathBuf {
        self.folder.path().join("own")
    }

    /// Runs `program` as the stranger, with `runtime_dir`.
    fn run(&self, program: &Path, arguments: &[&str], runtime_dir: &Path) -> Result<Outcome> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.own());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.own());
        command.env("HETCKPT_RUNTIME_DIR", runtime_dir);
        // Without root's supplementary groups, as the standard library does it for root.
        command.uid(STRANGER).gid(STRANGER);
        Running::run(command, PATIENCE)
    }

    /// What [`CONNECT`] says of `socket`.
    fn connect(&self, socket: &Path) -> Result<String> {
        let socket = socket.to_str().context("a path of other characters")?;
        let outcome = self.run(Path::new("perl"), &["-e", CONNECT, socket, "20"], &self.own())?;
        Ok(outcome.success("perl")?.stdout)
    }
}

fn cannot_dump_or_pause(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let (sandbox, reach) = (&context.sandbox, Reach::new()?);
    let program = start_paced(sandbox, baseline.length)?;
    let pid = program.pid();
    let word = pid.to_string();
    for runtime_dir in [sandbox.runtime_dir(), reach.own()] {
        for arguments in [
            &["dump", "--pid", &word, "-o", "stolen.hetsnap"][..],
            &["pause", "--pid", &word],
        ] {
            let outcome = reach.run(&reach.hetckpt(), arguments, &runtime_dir)?;
            ensure!(
                outcome.code == 1 && outcome.stderr.starts_with("error[HK") && outcome.stderr.contains(&word),
                "{arguments:?}: {}",
                outcome.text()
            );
        }
        let listed = reach.run(&reach.hetckpt(), &["ps", "--json"], &runtime_dir)?;
        ensure!(!listed.stdout.contains(&word), "{}", listed.text());
    }
    ensure!(
        fs::read_dir(reach.own())?.next().is_none(),
        "the stranger has got something"
    );
    let row = hetckpt::ps_row(sandbox, pid)?.context("the program is not listed for its user")?;
    ensure!(row["running_kernels"] == 1, "{row}");
    let code = program.finish()?;
    ensure!(code == 0, "the program ended with {code}");
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)
}

/// By the socket's place and permissions; where somebody has opened these, by who asks.
fn cannot_connect(context: &mut Context) -> Result<()> {
    let baseline = calibration::baseline(&PACED)?;
    let (sandbox, reach) = (&context.sandbox, Reach::new()?);
    let program = start_paced(sandbox, baseline.length)?;
    let socket = sandbox.runtime_dir().join(format!("app-{}.sock", program.pid()));
    let mode = fs::metadata(&socket)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "the socket has mode {mode:o}");
    let said = reach.connect(&socket)?;
    ensure!(said.starts_with("refused: "), "another user was: {said}");

    let folder = socket.parent().and_then(Path::parent).context("a folder")?;
    let open = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode));
    open(folder, 0o711)?;
    open(&sandbox.runtime_dir(), 0o711)?;
    let said = reach.connect(&socket)?;
    ensure!(
        said.starts_with("refused: "),
        "another user was, in an open folder: {said}"
    );
    open(&socket, 0o666)?;
    let said = reach.connect(&socket)?;
    ensure!(said == "hung up\n", "another user was, at an open socket: {said}");
    ensure!(
        kept_for_root(sandbox, &socket)? == "kept\n",
        "its own user is sent away"
    );

    let code = program.finish()?;
    ensure!(code == 0, "the program ended with {code}");
    ensure_same(&sandbox.path("out"), &baseline.outcome.stdout)
}

/// What [`CONNECT`] says to the program's own user, after a short wait.
fn kept_for_root(sandbox: &Sandbox, socket: &Path) -> Result<String> {
    let mut command = Command::new("perl");
    sandbox.equip(&mut command);
    command.args(["-e", CONNECT]).arg(socket).arg("0.3");
    Ok(Running::run(command, PATIENCE)?.success("perl")?.stdout)
}
