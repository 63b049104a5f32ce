//! What each example needs, and what must come of it. All is written as scripts of bash, which run in the folder of the
//! example. `$OUTPUT` is the file with its output, `$EXAMPLES` the folder `examples` of the repository, `$PORT` a free port.

/// An example.
#[derive(Default)]
pub(super) struct Row {
    /// The example as the text shows it.
    pub(super) script: &'static str,
    /// The example is not run where this fails.
    pub(super) needs: &'static str,
    /// Runs first.
    pub(super) before: &'static str,
    /// Run beside the example.
    pub(super) beside: Vec<&'static str>,
    /// Is repeated until it succeeds, before the example begins.
    pub(super) ready: &'static str,
    /// Standard input of the example, which does not end. Without it, it is empty.
    pub(super) input: Option<&'static str>,
    /// The user who runs it.
    pub(super) user: Option<u32>,
    pub(super) is_on_terminal: bool,
    /// The exit code of an example that ends.
    pub(super) code: i32,
    /// Is part of the output of an example that ends.
    pub(super) prints: &'static str,
    /// An example that does not end works if this succeeds. It is repeated until then, and a signal ends the example.
    pub(super) lives: &'static str,
    /// Must succeed at last; is repeated until then.
    pub(super) after: &'static str,
}

impl Row {
    const fn needs(mut self, script: &'static str) -> Self {
        self.needs = script;
        self
    }

    const fn before(mut self, script: &'static str) -> Self {
        self.before = script;
        self
    }

    fn beside(mut self, script: &'static str) -> Self {
        self.beside.push(script);
        self
    }

    const fn ready(mut self, script: &'static str) -> Self {
        self.ready = script;
        self
    }

    const fn input(mut self, text: &'static str) -> Self {
        self.input = Some(text);
        self
    }

    /// Only root can run it as this user.
    const fn user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self.needs("test $(id -u) = 0 && command -v setpriv")
    }

    const fn on_terminal(mut self) -> Self {
        self.is_on_terminal = true;
        self.needs("command -v script")
    }

    const fn code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    const fn prints(mut self, text: &'static str) -> Self {
        self.prints = text;
        self
    }

    const fn lives(mut self, script: &'static str) -> Self {
        self.lives = script;
        self
    }

    const fn after(mut self, script: &'static str) -> Self {
        self.after = script;
        self
    }
}

fn row(script: &'static str) -> Row {
    Row { script, ..Row::default() }
}

/// Of these only the arguments are checked.
pub(super) const ARGUMENTS_ONLY: [&str; 3] =
    ["corewire bench ", "corewire study ", "corewire tune"];

/// The row of all examples that begin so. Studies are there only in a `corewire-lab` that was built with rivals.
pub(super) fn arguments_of(start: &'static str) -> Row {
    let is_there = if start.contains("study") { "corewire study --help" } else { "" };
    row(start).needs(is_there).prints("Usage: ")
}

/// Makes the folder of programs: what cargo has built is in `$0`. MPIs only say what
/// they are, and in which environment they run; real ones run in the tests of `corewire-fabric`.
pub(super) const PROGRAMS: &str = r#"
for program in corewire corewire-lab calculator file_server shop; do
    ln "$0/$program" . || cp "$0/$program" .
done
touch libcorewire-fi.so
mpi() {
    printf '#!/bin/sh\n[ "$1" != --version ] || { echo "%s"; exit; }\nprintenv FI_PROVIDER; printf "%%s " "$@"\n' "$2" > "$1"
    chmod 755 "$1"
}
mpi mpiexec 'HYDRA build details: Version: 5.0.2'
mpi mpirun 'mpirun (Open MPI) 4.1.4'
mpi mpirun.openmpi 'mpirun (Open MPI) 4.1.4'
mpi intel 'Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 1 (id: 2)'
"#;

/// A receiver waits for a channel.
const AWAITED: &str = r#"ls "$COREWIRE_RUNTIME_DIR" | grep '^w[.]'"#;

pub(super) fn all() -> Vec<Row> {
    let all =
        [send(), receive(), calls(), groups(), circuits(), mpi(), looking(), interfaces(), users()];
    all.into_iter().flatten().collect()
}

fn send() -> Vec<Row> {
    let of_tail = |script| {
        row(script)
            .beside("corewire receive log --lines > got")
            .ready(AWAITED)
            .lives("grep a.line got")
    };
    vec![
        of_tail("tail -f log | corewire send log --lines").before("echo a line > log"),
        of_tail("tail -f app.log | corewire send log --lines").before("echo a line > app.log"),
        row("corewire send image disk.img --wait-receivers 3")
            .before("head -c 300000 /dev/urandom > disk.img")
            .beside("corewire receive image > one & corewire receive image > two & corewire receive image > three & wait")
            .after("cmp disk.img one; cmp disk.img two; cmp disk.img three"),
        row("find . -print0 | corewire send files -0")
            .before("touch some.file")
            .beside("corewire receive files -0 > found")
            .ready(AWAITED)
            .after("tr '\\0' '\\n' < found | grep some.file"),
        row("corewire send urls --queue --lines urls.txt")
            .before("seq 100 > urls.txt")
            .beside("corewire receive urls --queue --lines > done")
            .after("cmp urls.txt done"),
        row("corewire send config --latest config.json")
            .before("echo '{}' > config.json")
            .lives("corewire receive config --latest --count 1 | cmp - config.json"),
        row("corewire send prices --lines --overwrite")
            .input("17\n")
            .lives("test $(corewire receive prices --oldest --count 1) = 17"),
        row("corewire send prices --lines --evict 500")
            .input("17\n")
            .lives("test $(corewire receive prices --oldest --count 1) = 17"),
        row("corewire send log --lines --shared 16").input("17\n").lives("corewire ls --json | grep '\"sent\": 1'"),
        row("corewire send steps --levels two")
            .input("17\n")
            .lives("test $(corewire receive steps --oldest --count 1) = 17"),
        row("corewire send log --lines --access group:adm")
            .needs("test $(id -u) = 0 && getent group adm")
            .input("17\n")
            .lives("test $(stat -c %G \"$COREWIRE_RUNTIME_DIR\") = adm; corewire ls | grep '^log '"),
    ]
}

fn receive() -> Vec<Row> {
    vec![
        row("corewire receive log --lines | grep error")
            .beside("printf 'fine\\nan error\\n' | corewire send log --lines --wait-receivers 1")
            .prints("an error\n"),
        row("corewire receive log --lines --follow")
            .beside("for line in 1 2; do echo $line | corewire send log --lines --wait-receivers 1; done")
            .lives("test \"$(cat \"$OUTPUT\")\" = \"$(seq 2)\""),
        row("corewire receive image > copy.img")
            .before("head -c 300000 /dev/urandom > disk.img")
            .beside("corewire send image disk.img --wait-receivers 1")
            .after("cmp disk.img copy.img"),
        row("corewire receive prices --json | jq .sequence")
            .needs("command -v jq")
            .beside("seq 2 | corewire send prices --lines --wait-receivers 1")
            .prints("0\n1\n"),
        row("corewire receive prices --json --oldest")
            .beside("tail -f /dev/null | { echo 17; cat; } | corewire send prices --lines")
            .ready("corewire ls | grep '^prices '")
            .lives("grep MTc= \"$OUTPUT\""),
        row("corewire receive urls --queue --lines | xargs -n 1 curl -sO")
            .needs("command -v curl")
            .before("mkdir site; echo a > site/a; echo b > site/b")
            .beside("printf \"file://$PWD/site/%s\\n\" a b | corewire send urls --queue --lines")
            .after("cmp a site/a; cmp b site/b"),
        row("corewire receive config --latest --count 1")
            .before("echo '{}' > config.json")
            .beside("corewire send config --latest config.json")
            .prints("{}\n"),
    ]
}

fn calls() -> Vec<Row> {
    let to_calculator = |script| row(script).beside("calculator service");
    let to_shop = |script| row(script).beside("shop serve");
    let files = |script| {
        row(script)
            .before("mkdir served; echo text > served/a.txt")
            .beside("file_server serve served")
    };
    vec![
        row("corewire serve upper -- tr a-z A-Z").lives("test $(echo hello | corewire call upper) = HELLO"),
        row("corewire serve sum --timeout 10 --largest 1M -- sha256sum")
            .lives("cmp <(echo hello | corewire call sum) <(echo hello | sha256sum)"),
        row("corewire serve sum --jobs 1 --timeout 10 --largest 1M -- sh -c 'sha256sum | cut -d\" \" -f1'")
            .lives("cmp <(echo hello | corewire call sum) <(echo hello | sha256sum | cut -d' ' -f1)"),
        row("echo hello | corewire call upper").beside("corewire serve upper -- tr a-z A-Z").prints("HELLO\n"),
        row("corewire call sum < disk.img")
            .before("echo hello > disk.img")
            .beside("corewire serve sum -- sha256sum")
            .after("cmp \"$OUTPUT\" <(sha256sum < disk.img)"),
        row("corewire call sum --timeout 2 < disk.img")
            .before("echo hello > disk.img")
            .beside("corewire serve sum -- sha256sum")
            .ready("corewire ls | grep '^sum '")
            .after("cmp \"$OUTPUT\" <(sha256sum < disk.img)"),
        to_calculator("corewire call calculator sum '[[6, 7]]'").prints("{\"total\":13}\n"),
        to_calculator("corewire call calculator sum '[[6, 7]]' --driver sock").prints("{\"total\":13}\n"),
        to_calculator("corewire call calculator multiply '{\"p\": {\"left\": 6, \"right\": 7}}'")
            .prints("{\"product\":42}\n"),
        to_calculator("corewire call calculator --interface").prints("    rpc multiply @1("),
        to_calculator("corewire call calculator --interface --json").prints("\"name\": \"multiply\""),
        to_calculator("corewire call calculator --events")
            .lives("corewire call calculator note '[\"a line\"]'; grep '\"event\":\"noted\"' \"$OUTPUT\""),
        to_calculator("corewire call calculator --events noted --count 10")
            .lives("corewire call calculator note '[\"a line\"]'; test $(wc -l < \"$OUTPUT\") = 10"),
        to_shop("corewire call shop buy '[\"tea\", 2]'").prints("{\"cost\":8.5}\n"),
        to_shop("jq -c .order queue.json | corewire call shop buy -")
            .needs("command -v jq")
            .before("echo '{\"order\": [\"tea\", 2], \"priority\": 1}' > queue.json")
            .prints("{\"cost\":8.5}\n"),
        to_shop("corewire call shop log '[true]' --count 10")
            .beside("for each in {1..10}; do corewire call shop buy '[\"ice\", 1]'; done")
            .after("test $(grep -c '{\"line\":\"sold 1 ice\"}' \"$OUTPUT\") = 10"),
        files("corewire call files open '{\"name\": \"a.txt\"}' --copy-to -").prints("text\n"),
        files("corewire call files open '{\"name\": \"a.txt\"}' --copy-to a.txt").after("cmp a.txt served/a.txt"),
    ]
}

fn groups() -> Vec<Row> {
    let member = "corewire log orders --stay < /dev/null > entries";
    vec![
        row("corewire log orders --stay < /dev/null")
            .lives("echo an order | corewire log orders --append; grep an.order \"$OUTPUT\""),
        row("echo 'one more' | corewire log orders").prints("one more\n"),
        row("echo 'one more' | corewire log orders --append")
            .beside(member)
            .after("grep one.more entries"),
        row("corewire log orders --follow")
            .beside(member)
            .lives("echo an order | corewire log orders --append; grep an.order \"$OUTPUT\""),
        // `jq` writes whole lines to a terminal, and whole blocks to a file.
        row("corewire log orders --follow --json | jq .index")
            .on_terminal()
            .needs("command -v script && command -v jq")
            .beside(member)
            .lives("echo an order | corewire log orders --append; sed 1d \"$OUTPUT\" | grep 1"),
        row("corewire log orders --from 100 --json")
            .before("seq 0 100 > orders.txt")
            .beside("corewire log orders orders.txt --stay > entries")
            .ready("grep 100 entries")
            .prints("{\"index\":100,"),
        row("corewire log orders --file orders.log")
            .before("echo one more | corewire log orders --file orders.log")
            .prints("one more\n"),
        row("echo 'one more' | corewire log orders --file orders.log")
            .prints("one more\n")
            .after("test -s orders.log"),
        row("corewire log orders --file damaged.log --salvage readable.log")
            .before(
                "seq 3 | corewire log orders --file damaged.log; \
                 printf '\\377' | dd of=damaged.log bs=1 seek=8222 conv=notrunc",
            )
            .after(
                "test \"$(corewire log orders --file readable.log < /dev/null)\" = \"$(seq 2 3)\"",
            ),
    ]
}

fn circuits() -> Vec<Row> {
    let four = |script| {
        row(script)
            .beside("for number in 0 1 2 3; do corewire monitor --number $number & done; wait")
            .ready("test $(corewire routes show --json | grep -c '\"shape\"') = 4")
    };
    let called = |script| {
        row(script)
            .beside("corewire monitor & calculator service & corewire call calculator --events --driver circuit")
            .ready("corewire circuits | grep calculator")
    };
    vec![
        row("corewire monitor").lives("corewire routes show | grep 'monitor 0'"),
        row("corewire monitor --listen 0.0.0.0:7421")
            .lives("corewire routes show | grep 'monitor 0' && (exec 3<>/dev/tcp/127.0.0.1/7421)"),
        row("corewire monitor --per cache --pin").lives("corewire routes show | grep 'monitor 0'"),
        row("corewire monitor --number 3 --poll-ns 20000").lives("corewire routes show | grep 'monitor 3'"),
        row("corewire monitor --policy FILE --access users:1001")
            .before(r#"printf '[[rule]]\nallow = "bind"\nnames = "calculator*"\nusers = [1001]\n' > FILE"#)
            .lives("corewire routes show | grep 'monitor 0'"),
        row("corewire monitor --policy /etc/corewire/policy.toml --access users:1001")
            .before(
                r#"mkdir -p etc/corewire
                printf '[[rule]]\nallow = "bind"\nnames = "calculator*"\nusers = [1001]\n' > etc/corewire/policy.toml"#,
            )
            .lives("corewire routes show | grep 'monitor 0'"),
        called("corewire circuits").prints("calculator"),
        called("corewire circuits --monitor 0 --json").prints("\"service\": \"calculator\""),
        four("corewire routes show").prints("monitor 3: direct"),
        four("corewire routes ring").after("corewire routes show | grep 'monitor 3: ring'"),
        four("corewire routes fat-tree --group 8").after("corewire routes show | grep 'monitor 3: fat tree'"),
        four("corewire routes via 0 3 2").after("corewire routes show | grep -A4 'monitor 0:' | grep 'monitor 3.*monitor 2'"),
        four("corewire routes direct").after("corewire routes show | grep 'monitor 3: direct, version 1'"),
        called("corewire trace --for 2").after("test -s corewire.pftrace"),
        called("corewire trace --out call.pftrace")
            .lives("corewire call calculator sum '[[6, 7]]' --driver circuit")
            .after("test -s call.pftrace"),
        called("corewire trace --for 1 --format json --out call.json").after("grep traceEvents call.json"),
        called("corewire trace --format json --out call.json")
            .lives("corewire call calculator sum '[[6, 7]]' --driver circuit")
            .after("grep traceEvents call.json"),
        row("corewire monitor &\ncalculator service &\ncalculator client --driver circuit\n\
             corewire circuits\ncorewire routes show\ncorewire top --filter monitor")
        .on_terminal()
        .lives("grep 'bound by circuit' \"$OUTPUT\"; grep 'monitor 0: direct' \"$OUTPUT\"; grep msg/s \"$OUTPUT\""),
    ]
}

fn mpi() -> Vec<Row> {
    let mpich =
        |script| row(script).before("mkdir -p mpich/bin; cp $(command -v mpiexec) mpich/bin");
    vec![
        row("corewire mpi -- mpiexec -n 4 ./app").prints("corewire\n-n 4 ./app "),
        mpich("corewire mpi -- ~/mpich/bin/mpiexec -n 2 python3 app.py")
            .prints("corewire\n-n 2 python3 app.py "),
        mpich("corewire mpi -- mpich/bin/mpiexec -n 4 ./app").prints("corewire\n-n 4 ./app "),
        mpich("corewire mpi -- mpich/bin/mpiexec -n 4 mpich/bin/python app.py")
            .prints("corewire\n-n 4 mpich/bin/python app.py "),
        row("corewire mpi -- mpirun.openmpi --oversubscribe -n 4 ./app")
            .prints("corewire\n--oversubscribe -n 4 ./app "),
        row("corewire mpi -- impi/bin/mpiexec -n 2 impi/bin/IMB-MPI1 -npmin 2 PingPong")
            .before("mkdir -p impi/bin; cp $(command -v intel) impi/bin/mpiexec")
            .prints("corewire\n-n 2 impi/bin/IMB-MPI1"),
        row("eval \"$(corewire mpi)\" && mpirun -n 4 ./app").prints("corewire\n-n 4 ./app "),
        row("eval \"$(corewire mpi)\""),
        row("corewire mpi --json").prints("\"kind\": \"mpich\""),
    ]
}

fn looking() -> Vec<Row> {
    let desk = |script| {
        row(script).beside("calculator service").ready("corewire ls | grep '^calculator '")
    };
    vec![
        desk("corewire ls").prints("calculator "),
        desk("corewire ls --json").prints("\"name\": \"calculator\""),
        desk("corewire ls --all").prints("calculator.rings "),
        desk("corewire top").on_terminal().lives("grep calculator \"$OUTPUT\""),
        desk("corewire top --json").prints("\"name\": \"calculator\""),
        desk("corewire metrics").prints("corewire_service{service=\"calculator\""),
        desk("corewire metrics --file /var/lib/node_exporter/corewire.prom")
            .before("mkdir -p var/lib/node_exporter")
            .after("grep calculator var/lib/node_exporter/corewire.prom"),
        desk("corewire metrics --port 9464").lives(
            "exec 3<> /dev/tcp/127.0.0.1/$PORT; printf 'GET /metrics HTTP/1.1\\r\\nHost: here\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
             grep calculator <&3",
        ),
        row("corewire doctor").prints("good        a channel"),
        row("corewire doctor --measure this-machine.json").after("grep pairs_ns this-machine.json"),
        row("corewire bench --help").prints("latency"),
        row("corewire model broadcast --receivers 1,16,255").prints("\n      255 "),
        row("corewire model broadcast --receivers 1,2,4,8,16,32,64,128,255").prints("\n      255 "),
        row("corewire model two_level --receivers 64").prints("\n       64 "),
        row("corewire model zimp --receivers 8,64 --topology this-machine.json")
            .before("echo '{\"near_ns\": 100}' > this-machine.json")
            .prints("\n       64 "),
        row("corewire model zimp --receivers 8,64 --topology two-sockets.json")
            .before("echo '{\"near_ns\": 100}' > two-sockets.json")
            .prints("\n       64 "),
    ]
}

fn interfaces() -> Vec<Row> {
    let calculator = |script| row(script).before("cp $EXAMPLES/interfaces/calculator.if .");
    let folder = |script| {
        row(script).before("mkdir -p if src/generated include; cp $EXAMPLES/{interfaces/calculator,shop/shop}.if if")
    };
    let imported = |script| {
        row(script).before(
            "mkdir if; echo 'alias word uint64;' > if/types.if
            echo 'interface boot \"\" { rpc start(in word core, out errval error); };' > if/boot.if",
        )
    };
    let versions = |script| {
        row(script).before(
            "mkdir old new; cp $EXAMPLES/interfaces/calculator.if old
            sed 's/LINE_BYTES_MAX]/64]/; $d' old/calculator.if > new/calculator.if
            echo 'message stop @5(); }' >> new/calculator.if
            corewire idl json old/calculator.if > calculator.json; cp new/calculator.if .",
        )
    };
    vec![
        calculator("corewire idl check calculator.if"),
        calculator("corewire idl check --message-format json calculator.if"),
        imported("corewire idl check --import if/types.if if/*.if"),
        row("corewire idl check --corpus /usr/src/barrelfish")
            .before(
                "mkdir -p usr/src/barrelfish/{if/platform,if/arch}; cd usr/src/barrelfish/if; touch platform/small.if types.if
                echo 'alias word uint32;' > arch/small.if; echo 'interface ask \"\" { message ask(word w); };' > ask.if",
            )
            .prints("architectures  small"),
        calculator("corewire idl format calculator.if")
            .after("cmp calculator.if $EXAMPLES/interfaces/calculator.if"),
        calculator("corewire idl format - < calculator.if").prints("interface calculator"),
        folder("corewire idl format --check if/*.if"),
        calculator("corewire idl json calculator.if > calculator.json").after("grep '\"multiply\"' calculator.json"),
        calculator("corewire idl json calculator.if | jq '.messages[].name'")
            .needs("command -v jq")
            .prints("\"multiply\"\n\"divide\"\n"),
        imported("corewire idl json --import if/types.if if/boot.if").prints("\"name\": \"boot\""),
        calculator("corewire idl rust calculator.if | less").needs("command -v less").prints("fn multiply"),
        folder("corewire idl rust --output src/generated if/*.if").after("test -s src/generated/shop.rs"),
        folder("corewire idl rust --output src/generated calculator.if")
            .before(
                "mkdir -p src/generated; cp $EXAMPLES/interfaces/calculator.if .",
            )
            .after("test -s src/generated/calculator.rs"),
        imported("corewire idl rust --import if/types.if if/boot.if").prints("fn start"),
        calculator("corewire idl c-header calculator.if > calculator.h").after("grep calculator_multiply_call calculator.h"),
        folder("corewire idl c-header --output include if/*.if").after("test -s include/shop.h"),
        calculator("corewire idl diff calculator.json calculator.if").before(
            "cp $EXAMPLES/interfaces/calculator.if .
            corewire idl json calculator.if > calculator.json",
        ),
        versions("$ corewire idl diff calculator.json calculator.if").code(1),
        versions("corewire idl diff old/calculator.if new/calculator.if --json").code(1).prints("\"breaks\": true"),
    ]
}

/// User 1000 owns the domain, user 1001 is a guest.
fn users() -> Vec<Row> {
    let listed = "setpriv --reuid=1001 --regid=1001 --clear-groups corewire ls --owner 1000 | grep '^prices '";
    let by_guest = |script| {
        row(script)
            .user(1001)
            .beside(
                "echo 17 | setpriv --reuid=1000 --regid=1000 --clear-groups \
                 corewire send prices --lines --access users:1001,1002 --wait-receivers 1",
            )
            .ready(listed)
    };
    vec![
        row("corewire send prices --lines --access users:1001,1002")
            .user(1000)
            .input("17\n")
            .lives(listed),
        by_guest("corewire receive prices --lines --owner 1000").prints("17\n"),
        by_guest("corewire ls --owner 1000").prints("prices "),
    ]
}
