use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Rows of modules: each imports lower rows only, and siblings of a row do not know each other.
const ROWS: &[&[&str]] = &[
    &["deadline", "identity", "json", "object", "record", "timings"],
    &["envelope"],
    &["message", "store"],
    &["offload", "protocol", "results", "work"],
    &["database"],
    &["objects", "stores", "works", "idempotency"],
    &["relay"],
    &["disposition"],
    &["traces"],
    &["batch", "metrics", "sqs", "visibility"],
    &["handler"],
    &["config", "testing"],
];

const SCRIPTS: [&str; 5] = ["acquire", "complete", "fail", "forget", "release"];

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Each source file under `src/`, with its module of the first level and its text up to its tests.
fn sources() -> Vec<(PathBuf, String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![project().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap().lines();
            let code = code.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
            let inside = path.strip_prefix(project().join("src")).unwrap();
            let module = Path::new(inside.components().next().unwrap().as_os_str()).file_stem().unwrap();
            files.push((inside.to_owned(), module.to_str().unwrap().to_owned(), code));
        }
    }
    files
}

#[test]
fn a_module_imports_lower_rows_only() {
    let row = |module: &str| ROWS.iter().position(|row| row.contains(&module));
    let mut seen = 0;
    for (path, module, code) in sources() {
        for import in code.split("crate::").skip(1) {
            let imported: String = import.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if matches!(module.as_str(), "lib" | "main" | "bin") || imported == module {
                continue;
            }
            let (here, there) = (row(&module), row(&imported));
            assert!(here.is_some() && there.is_some() && there < here, "{path:?} of {module} imports {imported}");
            seen += 1;
        }
    }
    assert!(seen > 20, "the test sees the imports");
}

#[test]
fn each_foreign_crate_is_named_where_it_belongs_only() {
    let homes: &[(&str, &[&str])] = &[
        ("redis::", &["stores/redis/"]),
        ("aws_config::", &["identity/", "objects/s3.rs", "visibility.rs"]),
        ("aws_credential_types::", &["identity/presigned.rs", "objects/s3.rs"]),
        ("aws_sigv4::", &["identity/presigned.rs", "objects/s3.rs"]),
        ("http::", &["identity/presigned.rs"]),
        ("http_body::", &["works/webhook/request.rs"]),
        ("aws_sdk_secretsmanager::", &["identity/secret.rs"]),
        ("aws_lambda_events::", &["sqs.rs"]),
        ("aws_sdk_sqs::", &["visibility.rs"]),
        (
            "lambda_runtime::",
            &["handler.rs", "handler/", "main.rs", "bin/ledger/main.rs", "bin/relay/main.rs", "testing/drive.rs"],
        ),
        ("opentelemetry", &["traces/"]),
        ("tracing_subscriber::", &["traces/"]),
        ("metrique_", &["metrics.rs", "metrics/"]),
        ("percent_encoding::", &["database/credentials.rs", "objects/s3.rs", "works/webhook.rs"]),
        ("reqwest::", &["works/webhook", "objects/s3.rs"]),
        ("clap::", &["bin/records/main.rs", "bin/records/arguments.rs"]),
        ("tokio_postgres::", &["database"]),
        ("tokio_postgres_rustls::", &["database/dial.rs"]),
        ("rustls::", &["database/dial.rs"]),
        ("deadpool::", &["database"]),
    ];
    for (name, homes) in homes {
        let named: Vec<String> = sources()
            .into_iter()
            .filter(|(_, _, code)| {
                code.lines().any(|line| line.contains(name) && !line.contains(&format!("self::{name}")))
            })
            .map(|(path, _, _)| path.display().to_string())
            .collect();
        assert!(!named.is_empty(), "{name}");
        assert!(named.iter().all(|path| homes.iter().any(|home| path.starts_with(home))), "{name} in {named:?}");
    }
}

#[test]
fn a_function_without_the_inbox_links_nothing_of_postgresql() {
    let tree = |features: &[&str]| {
        let cargo = std::process::Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{lib}"])
            .args(["--no-default-features"])
            .args(features)
            .current_dir(project())
            .output()
            .unwrap();
        assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
        String::from_utf8(cargo.stdout).unwrap()
    };
    let driver = ["tokio_postgres", "tokio_postgres_rustls", "deadpool"];
    let (without, with) = (tree(&[]), tree(&["--features", "postgres"]));
    for name in driver {
        assert!(!without.lines().any(|line| line == name), "{name}");
        assert!(with.lines().any(|line| line == name), "{name}");
    }
    for name in ["ring", "native_tls", "openssl"] {
        assert!(!with.lines().any(|line| line == name), "{name} is a second TLS stack");
    }
}

#[test]
fn a_script_opens_with_what_it_takes_and_gives_and_has_a_body_under_40_lines() {
    for name in SCRIPTS {
        let script = fs::read_to_string(project().join(format!("lua/{name}.lua"))).unwrap();
        let (header, body): (Vec<_>, Vec<_>) = script.lines().partition(|line| line.trim_start().starts_with("--"));
        let header = header.join("\n");
        assert!(header.starts_with(&format!("-- {name}: ")), "{name}");
        // A first line of flags is not Lua, and no part of the body.
        let body = body.into_iter().filter(|line| !line.starts_with("#!"));
        for part in ["KEYS[1..n]", "ARGV[1]", "Output: one string for each key"] {
            assert!(header.contains(part), "{name} says nothing of {part}");
        }
        let body: Vec<_> = body.filter(|line| !line.is_empty()).collect();
        assert!(body.len() < 40, "{name} has {} lines", body.len());
        assert!(body[0].starts_with("local ") && body[0].contains("ARGV[1]"), "{name} binds its arguments first");
        assert!(body.iter().all(|line| line.len() <= 120), "{name} has a line that is too long");
    }
}

#[test]
fn a_script_answers_with_the_words_of_its_header_and_no_others() {
    let is_word = |word: &&str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    for name in SCRIPTS {
        let script = fs::read_to_string(project().join(format!("lua/{name}.lua"))).unwrap();
        let (header, body): (Vec<_>, Vec<_>) = script.lines().partition(|line| line.trim_start().starts_with("--"));
        let output = header.join("\n");
        let output = output.split("Output:").nth(1).unwrap().split("--\n").next().unwrap();
        let mut promised: Vec<_> = output
            .lines()
            .filter_map(|line| line.strip_prefix("--   "))
            .flat_map(|line| line.split(" | "))
            .filter_map(|answer| answer.trim_start().split(' ').next())
            .filter(is_word)
            .collect();
        let answers = body.join("\n");
        let mut given: Vec<_> = answers
            .split('\'')
            .skip(1)
            .step_by(2)
            .filter_map(|answer| answer.split(' ').next())
            .filter(is_word)
            .filter(|word| !["TIME", "MGET", "GET", "SET", "DEL", "PXAT", "KEEPTTL"].contains(word))
            .collect();
        promised.sort_unstable();
        promised.dedup();
        given.sort_unstable();
        given.dedup();
        assert_eq!(promised, given, "{name}");
    }
}

#[test]
fn a_script_asks_for_the_time_once_and_first_and_never_writes_without_a_look() {
    for name in SCRIPTS {
        let script = fs::read_to_string(project().join(format!("lua/{name}.lua"))).unwrap();
        assert_eq!(script.contains("'DEL'"), name == "forget", "only an operator deletes, and {name} is none");
        if ["acquire", "forget"].contains(&name) {
            assert_eq!(script.matches("'TIME'").count(), 1, "{name} has one time");
            assert!(script.find("'TIME'") < script.find("'GET'"), "{name} asks for the time first");
        }
        let (mut looked, mut compared) = (false, false);
        for line in script.lines().filter(|line| !line.starts_with("--")) {
            // A SET that takes only what is absent is a look too.
            looked |= line.contains("'GET'") || line.contains("'NX'");
            assert!(looked || !line.contains("'SET'"), "{name} writes before it looks");
            compared |= line.contains("seen_of(record) ~= seen then return");
            assert!(compared || !line.contains("'DEL'"), "{name} deletes before it has compared what was seen");
        }
    }
}

#[test]
fn the_page_of_metrics_has_one_for_each_outcome() {
    let page = fs::read_to_string(project().join("docs/metrics.md")).unwrap();
    let source = fs::read_to_string(project().join("src/disposition.rs")).unwrap();
    let is_outcome = |word: &&str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let outcomes: BTreeSet<_> = source.split('"').skip(1).step_by(2).filter(is_outcome).collect();
    assert!(outcomes.contains("ACQUIRED") && outcomes.len() > 10, "{outcomes:?}");
    for outcome in outcomes {
        let metric: String = outcome.split('_').map(|word| word[..1].to_owned() + &word[1..].to_lowercase()).collect();
        assert!(page.contains(&format!("`{metric}`")), "docs/metrics.md says nothing of {metric}");
    }
}

#[test]
fn a_test_that_the_docs_name_is_there() {
    let pages = ["docs/faults.md", "docs/inbox.md"].map(|page| fs::read_to_string(project().join(page)).unwrap());
    let page = pages.join("\n");
    let mut tests = String::new();
    let mut folders = vec![project().join("tests/it")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                tests += &fs::read_to_string(path).unwrap();
            }
        }
    }
    // Paths of types begin with a capital, and blocks of code have lines.
    let is_test = |name: &&str| name.contains("::") && name.starts_with(char::is_lowercase) && !name.contains('\n');
    let names: Vec<_> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(names.len() > 30);
    for name in names {
        let test = name.rsplit("::").next().unwrap();
        // One that ends in an ellipsis, or in nothing, stands for all that begin so.
        let start = test.strip_suffix('…').map_or_else(|| format!("fn {test}("), |start| format!("fn {start}"));
        assert!(test.is_empty() || tests.contains(&start), "{name}");
    }
}
