//! Tellers of `bank` are killed at random (`COREWIRE_TORTURE_KILLS`, default: 12; `COREWIRE_SEED`): every order is answered as
//! the balance demands, and nothing is lost or done twice.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Tellers at one time.
const TELLERS: usize = 4;

struct Teller {
    child: Child,
    output: BufReader<ChildStdout>,
    account: String,
    /// What the account holds: two numbers if the last order was not answered.
    possible: Vec<u64>,
}

impl Teller {
    fn start(directory: &Path, account: String, possible: Vec<u64>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bank"));
        command.env("COREWIRE_RUNTIME_DIR", directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut teller = Self { child, output, account, possible };
        assert_eq!(teller.line(), "open");
        teller
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn say(&mut self, order: &str, amount: u64) {
        let account = &self.account;
        writeln!(self.child.stdin.as_mut().unwrap(), "{order} {account} {amount}").unwrap();
    }

    /// An order, and what must be answered.
    fn order(&mut self, random: u64) {
        let amount = random >> 8 & 0xff;
        let balance = self.possible[0];
        let (order, next) = match random % 2 {
            0 => ("deposit", Some(balance + amount)),
            _ => ("withdraw", balance.checked_sub(amount)),
        };
        self.say(order, amount);
        let word = if next.is_some() { "accepted" } else { "refused" };
        self.possible = vec![next.unwrap_or(balance)];
        assert_eq!(self.line(), format!("{word} {}", self.possible[0]));
    }

    /// Is killed while it carries out an order; another one knows the account.
    fn replace(mut self, directory: &Path, random: u64) -> Self {
        let amount = random >> 8 & 0xff;
        self.say("deposit", amount);
        for _ in 0..random % 2000 {
            std::hint::spin_loop();
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let balance = self.possible[0];
        let possible = vec![balance, balance + amount];
        let mut next = Self::start(directory, self.account, possible);
        next.say("balance", 0);
        let said = next.line();
        let balance = said.strip_prefix("accepted ").unwrap().parse().unwrap();
        assert!(next.possible.contains(&balance), "{balance}, not one of {:?}", next.possible);
        next.possible = vec![balance];
        next
    }
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

// Keeps P204.
#[test]
fn balances_are_right_whatever_teller_is_killed() {
    let path = std::env::temp_dir().join(format!("corewire-example-bank-{}", std::process::id()));
    let directory = Directory(path);
    let (kills, seed) = (given("COREWIRE_TORTURE_KILLS", 12), given("COREWIRE_SEED", 0x2545_f491));
    println!("{kills} kills, seed {seed}");
    let mut state = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 3
    };
    let mut tellers: Vec<Teller> =
        (0..TELLERS).map(|at| Teller::start(&directory.0, format!("a{at}"), vec![0])).collect();
    let mut orders = 0;
    for _ in 0..kills {
        for _ in 0..20 {
            tellers.iter_mut().for_each(|teller| teller.order(random()));
            orders += TELLERS;
        }
        let teller = tellers.remove(usize::try_from(random()).unwrap() % TELLERS);
        tellers.push(teller.replace(&directory.0, random()));
    }
    println!("{orders} orders");
    for mut teller in tellers {
        teller.child.kill().unwrap();
        teller.child.wait().unwrap();
    }
}
