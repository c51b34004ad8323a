//! What a reader of the code relies on: layers, dependencies, the form of the scripts, and pages that match the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::workspace;
use idempotent_sqs::sqs::MessageOutcome;

/// Layers of the library's modules: each imports lower layers only, and modules of one layer are independent.
const LAYERS: &[&[&str]] = &[
    &["idempotency", "credentials"],
    &["stores", "aws", "traces"],
    &["s3", "sqs"],
    &["metrics", "webhook"],
    &["lambda"],
    &["config"],
];

const SCRIPTS: [&str; 5] = ["acquire", "complete", "fail", "forget", "release"];

/// The Rust files below this folder, with their text up to their tests and without comments.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = workspace(folder);
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
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
            files.push((path.strip_prefix(&root).unwrap().to_owned(), code));
        }
    }
    files
}

/// The names that follow this path in the code: `crate::` gives the modules that are imported.
fn names_after<'a>(code: &'a str, path: &str) -> impl Iterator<Item = &'a str> {
    code.split(path).skip(1).map(|rest| &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0)])
}

#[test]
fn a_module_imports_lower_layers_only() {
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut seen = 0;
    for (path, code) in sources("src") {
        let module = Path::new(path.components().next().unwrap().as_os_str()).file_stem().unwrap().to_str().unwrap();
        if ["lib", "main"].contains(&module) {
            continue;
        }
        for imported in names_after(&code, "crate::").filter(|imported| *imported != module) {
            let (here, there) = (layer(module), layer(imported));
            assert!(here.is_some() && there.is_some() && there < here, "{path:?} of {module} imports {imported}");
            seen += 1;
        }
    }
    assert!(seen > 20, "the test sees the imports");
}

#[test]
fn the_files_of_a_module_do_not_import_each_other_in_circles() {
    for module in ["src/idempotency", "src/sqs", "crates/postgres/src/database", "crates/postgres/src/inbox"] {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, code) in sources(module).into_iter().filter(|(path, _)| path.components().count() == 1) {
            let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let siblings =
                names_after(&code, "use super::").filter(|name| workspace(module).join(format!("{name}.rs")).is_file());
            imports.insert(file, siblings.map(str::to_owned).collect());
        }
        assert!(imports.values().any(|siblings| !siblings.is_empty()), "the test sees the imports of {module}");
        // Files that import nothing that is left are removed, until none is left or the others form a circle.
        while !imports.is_empty() {
            let free: Vec<_> = imports
                .iter()
                .filter(|(_, siblings)| siblings.iter().all(|sibling| !imports.contains_key(sibling)))
                .map(|(file, _)| file.clone())
                .collect();
            assert!(!free.is_empty(), "{module} has a circle among {:?}", imports.keys());
            free.iter().for_each(|file| drop(imports.remove(file)));
        }
    }
}

#[test]
fn each_foreign_crate_is_used_only_where_it_belongs() {
    let homes: &[(&str, &str, &[&str])] = &[
        ("src", "redis::", &["stores/redis"]),
        ("src", "aws_config::", &["aws.rs", "aws/"]),
        ("src", "aws_credential_types::", &["aws/", "s3.rs"]),
        ("src", "aws_sigv4::", &["aws/token.rs", "s3.rs"]),
        ("src", "http::", &["aws/token.rs"]),
        ("src", "http_body::", &["webhook/request.rs"]),
        ("src", "aws_sdk_secretsmanager::", &["aws/secret.rs"]),
        ("src", "aws_sdk_sqs::", &["sqs/visibility.rs"]),
        ("src", "lambda_runtime::", &["lambda.rs", "main.rs"]),
        ("src", "opentelemetry", &["traces/"]),
        ("src", "tracing_subscriber::", &["traces/"]),
        ("src", "metrique_", &["metrics.rs", "metrics/"]),
        ("src", "percent_encoding::", &["aws/rds.rs", "s3.rs", "webhook.rs"]),
        ("src", "reqwest::", &["webhook", "s3.rs"]),
        ("crates/ops/src", "clap::", &["main.rs", "arguments.rs"]),
        ("crates/postgres/src", "tokio_postgres::", &["database"]),
        ("crates/postgres/src", "tokio_postgres_rustls::", &["database/dial.rs"]),
        ("crates/postgres/src", "rustls::", &["database/dial.rs"]),
        ("crates/postgres/src", "deadpool::", &["database"]),
    ];
    for (folder, name, homes) in homes {
        let is_used = |line: &str| {
            let used = line
                .match_indices(name)
                .any(|(at, _)| !line[..at].ends_with(|c: char| c == ':' || c == '_' || c.is_alphanumeric()));
            // Modules of this crate may have the name of a foreign one.
            used && !line.contains(&format!("use {name}read")) && !line.contains(&format!("{name}records"))
        };
        let used: Vec<_> = sources(folder)
            .into_iter()
            .filter(|(_, code)| code.lines().any(is_used))
            .map(|(path, _)| path.display().to_string())
            .filter(|path| !(*name == "redis::" && ["config.rs", "stores.rs"].contains(&path.as_str())))
            .collect();
        assert!(!used.is_empty(), "{name}");
        assert!(used.iter().all(|path| homes.iter().any(|home| path.starts_with(home))), "{name} in {used:?}");
    }
}

/// The crates that a package links with these features.
fn dependencies(package: &str, features: &str) -> BTreeSet<String> {
    let cargo = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{lib}"])
        .args(["--package", package, "--no-default-features", "--features", features])
        .current_dir(workspace("."))
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let tree = String::from_utf8(cargo.stdout).unwrap();
    tree.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_core_links_no_sqs_no_lambda_no_aws_and_no_http_client() {
    let (memory, redis) = (dependencies("idempotent-sqs", ""), dependencies("idempotent-sqs", "redis"));
    for (crates, most) in [(&memory, 30), (&redis, 110)] {
        assert!(crates.len() <= most, "{} crates: {crates:?}", crates.len());
        for name in crates {
            let foreign = ["lambda", "aws_config", "aws_sdk", "aws_sigv4", "aws_smithy", "hyper", "reqwest", "serde"];
            assert!(!foreign.iter().any(|foreign| name.starts_with(foreign)), "{name} is in {crates:?}");
        }
    }
    assert!(memory.contains("tokio") && !memory.contains("redis") && redis.contains("redis"), "{memory:?}");
}

#[test]
fn a_feature_that_is_off_removes_its_dependencies() {
    let (all, features) = (
        "redis,aws,lambda,webhook,s3,otel",
        [
            ("redis,aws,lambda", &["reqwest", "opentelemetry"][..]),
            ("redis,aws,s3", &["lambda_runtime", "aws_sdk_sqs", "metrique_writer_format_emf"]),
            ("redis,aws", &["reqwest"]),
            ("redis", &["aws_config", "aws_sdk_secretsmanager", "aws_sigv4", "serde_json"]),
        ],
    );
    let with_all = dependencies("idempotent-sqs", all);
    for (features, removed) in features {
        let left = dependencies("idempotent-sqs", features);
        for name in removed {
            assert!(with_all.contains(*name), "{name} is no dependency at all");
            assert!(!left.contains(*name), "{features} links {name}");
        }
    }
    for name in ["tokio_postgres", "clap"] {
        assert!(!with_all.contains(name), "{name}");
    }
}

#[test]
fn there_is_one_tls_stack() {
    for package in ["idempotent-sqs", "idempotent-sqs-postgres", "ledger"] {
        let crates = dependencies(package, if package == "idempotent-sqs" { "webhook,s3,otel" } else { "" });
        assert!(crates.contains("rustls"), "{package}");
        for name in ["ring", "native_tls", "openssl"] {
            assert!(!crates.contains(name), "{package} links {name}");
        }
    }
}

#[test]
fn a_script_opens_with_what_it_takes_and_gives_and_has_a_body_under_40_lines() {
    for name in SCRIPTS {
        let script = fs::read_to_string(workspace(&format!("lua/{name}.lua"))).unwrap();
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
        let script = fs::read_to_string(workspace(&format!("lua/{name}.lua"))).unwrap();
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
        let script = fs::read_to_string(workspace(&format!("lua/{name}.lua"))).unwrap();
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
    let page = fs::read_to_string(workspace("docs/metrics.md")).unwrap();
    for outcome in MessageOutcome::ALL {
        let metric = outcome.metric();
        assert!(page.contains(&format!("`{metric}`")), "docs/metrics.md does not describe {metric}");
    }
}

#[test]
fn a_test_that_the_docs_name_is_there() {
    let pages = ["docs/faults.md", "docs/inbox.md"].map(|page| fs::read_to_string(workspace(page)).unwrap());
    let page = pages.join("\n");
    let mut tests = String::new();
    let packages =
        ["tests", "crates/testing/tests", "crates/postgres/tests", "crates/ops/tests", "examples/ledger/tests"];
    let mut folders: Vec<_> = packages.map(workspace).into();
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
