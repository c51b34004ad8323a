//! Layers of the modules, external crates and where they are used, and the dependencies of each feature.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::workspace;

/// Layers of the library's modules, lowest first. A module imports only lower layers, and no module of its own layer.
const LAYERS: &[&[&str]] = &[
    &["idempotency", "connections"],
    &["credentials"],
    &["stores", "aws", "traces"],
    &["s3", "sqs"],
    &["metrics", "webhook"],
    &["lambda"],
    &["config"],
];

/// Paths and code of the Rust files in this folder and its subfolders, without unit tests and comments.
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

/// The names that follow `path` in the code. For `crate::` these are the imported modules.
fn names_after<'a>(code: &'a str, path: &str) -> impl Iterator<Item = &'a str> {
    code.split(path).skip(1).map(|rest| &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0)])
}

#[test]
fn modules_import_only_lower_layers() {
    let layer = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut imports = 0;
    for (path, code) in sources("src") {
        let module = Path::new(path.components().next().unwrap().as_os_str()).file_stem().unwrap().to_str().unwrap();
        if ["lib", "main"].contains(&module) {
            continue;
        }
        for imported in names_after(&code, "crate::").filter(|imported| *imported != module) {
            let (own, other) = (layer(module), layer(imported));
            assert!(own.is_some() && other.is_some() && other < own, "{path:?} of {module} imports {imported}");
            imports += 1;
        }
    }
    assert!(imports > 20, "only {imports} imports found");
}

#[test]
fn the_files_of_a_module_have_no_import_cycles() {
    for module in ["src/idempotency", "src/sqs", "crates/postgres/src/database", "crates/postgres/src/inbox"] {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, code) in sources(module).into_iter().filter(|(path, _)| path.components().count() == 1) {
            let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let siblings =
                names_after(&code, "use super::").filter(|name| workspace(module).join(format!("{name}.rs")).is_file());
            imports.insert(file, siblings.map(str::to_owned).collect());
        }
        assert!(imports.values().any(|siblings| !siblings.is_empty()), "no imports found in {module}");
        // Repeatedly remove the files that import no remaining file. Files that cannot be removed form a cycle.
        while !imports.is_empty() {
            let free: Vec<_> = imports
                .iter()
                .filter(|(_, siblings)| siblings.iter().all(|sibling| !imports.contains_key(sibling)))
                .map(|(file, _)| file.clone())
                .collect();
            assert!(!free.is_empty(), "{module} has an import cycle among {:?}", imports.keys());
            imports.retain(|file, _| !free.contains(file));
        }
    }
}

#[test]
fn each_external_crate_is_used_only_in_its_own_modules() {
    let allowed: &[(&str, &str, &[&str])] = &[
        ("src", "redis::", &["stores/redis"]),
        ("src", "aws_config::", &["aws.rs", "aws/", "s3/url.rs"]),
        ("src", "aws_credential_types::", &["aws/", "s3.rs"]),
        ("src", "aws_sigv4::", &["aws/token.rs", "s3.rs"]),
        ("src", "http::", &["aws/token.rs"]),
        ("src", "http_body::", &["webhook/request.rs"]),
        ("src", "aws_sdk_secretsmanager::", &["aws/secret.rs"]),
        ("src", "aws_sdk_sqs::", &["sqs/client.rs", "sqs/dead_letter_queue.rs", "sqs/visibility.rs"]),
        ("src", "aws_smithy_types::", &["sqs/"]),
        ("src", "lambda_runtime::", &["lambda.rs", "lambda/", "main.rs"]),
        ("src", "opentelemetry", &["traces/"]),
        ("src", "tracing_subscriber::", &["traces/"]),
        ("src", "metrique_", &["metrics.rs", "metrics/"]),
        ("src", "percent_encoding::", &["aws/rds.rs", "s3/url.rs", "webhook.rs"]),
        ("src", "reqwest::", &["connections.rs", "webhook", "s3"]),
        ("src", "rustls::", &["stores/redis/connection/target.rs"]),
        ("crates/ops/src", "clap::", &["letters.rs", "letters/arguments.rs", "records.rs", "records/arguments.rs"]),
        ("crates/postgres/src", "tokio_postgres::", &["database"]),
        ("crates/postgres/src", "tokio_postgres_rustls::", &["database/dial.rs"]),
        ("crates/postgres/src", "rustls::", &["database/dial.rs", "database/roots.rs"]),
        ("crates/postgres/src", "deadpool::", &["database"]),
    ];
    for (folder, name, paths) in allowed {
        let is_used = |line: &str| {
            let used = line
                .match_indices(name)
                .any(|(at, _)| !line[..at].ends_with(|c: char| c == ':' || c == '_' || c.is_alphanumeric()));
            // A module of the project may have the name of an external crate.
            used && !line.contains(&format!("use {name}read")) && !line.contains(&format!("{name}records"))
        };
        let used: Vec<_> = sources(folder)
            .into_iter()
            .filter(|(_, code)| code.lines().any(is_used))
            .map(|(path, _)| path.display().to_string())
            .filter(|path| !(*name == "redis::" && ["config.rs", "stores.rs"].contains(&path.as_str())))
            .collect();
        assert!(!used.is_empty(), "{name}");
        assert!(used.iter().all(|path| paths.iter().any(|allowed| path.starts_with(allowed))), "{name} in {used:?}");
    }
}

/// The crates that a package links if these features are enabled.
fn dependencies(package: &str, features: &str) -> BTreeSet<String> {
    tree("{lib}", package, features)
}

/// A line of this format for each crate that a package links if these features are enabled.
fn tree(format: &str, package: &str, features: &str) -> BTreeSet<String> {
    let cargo = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--format", format])
        .args(["--package", package, "--no-default-features", "--features", features])
        .current_dir(workspace("."))
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let tree = String::from_utf8(cargo.stdout).unwrap();
    tree.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_core_does_not_link_sqs_lambda_aws_or_an_http_client() {
    let (memory, redis) = (dependencies("idempotent-sqs", ""), dependencies("idempotent-sqs", "redis"));
    for (crates, max) in [(&memory, 30), (&redis, 110)] {
        assert!(crates.len() <= max, "{} crates: {crates:?}", crates.len());
        for name in crates {
            let forbidden = ["lambda", "aws_config", "aws_sdk", "aws_sigv4", "aws_smithy", "hyper", "reqwest", "serde"];
            assert!(!forbidden.iter().any(|forbidden| name.starts_with(forbidden)), "{name} is in {crates:?}");
        }
    }
    assert!(memory.contains("tokio") && !memory.contains("redis") && redis.contains("redis"), "{memory:?}");
}

#[test]
fn a_disabled_feature_removes_its_dependencies() {
    let (all, features) = (
        "redis,aws,lambda,webhook,s3,otel",
        [
            ("redis,aws,lambda", &["reqwest", "opentelemetry"][..]),
            ("redis,aws,s3", &["lambda_runtime", "aws_sdk_sqs", "metrique_writer_format_emf"]),
            ("redis,aws", &["reqwest"]),
            ("redis,serde", &["aws_config", "aws_sdk_secretsmanager", "aws_sigv4"]),
            ("redis", &["serde", "serde_json"]),
        ],
    );
    let with_all = dependencies("idempotent-sqs", all);
    for (features, removed) in features {
        let remaining = dependencies("idempotent-sqs", features);
        for name in removed {
            assert!(with_all.contains(*name), "{name} is not a dependency of any feature");
            assert!(!remaining.contains(*name), "{features} links {name}");
        }
    }
    for name in ["tokio_postgres", "clap"] {
        assert!(!with_all.contains(name), "{name}");
    }
    for name in ["metrique_writer_core", "metrique_writer_format_emf"] {
        assert!(dependencies("idempotent-sqs-http", "emf").contains(name), "{name}");
        assert!(!dependencies("idempotent-sqs-http", "").contains(name), "{name}");
    }
}

/// A crate may enable features that another one lacks. So these are the smallest programs.
#[test]
fn each_client_has_tls_without_the_features_of_other_crates() {
    for (package, features, crate_name, feature) in [
        ("idempotent-sqs", "redis", "rustls", "aws_lc_rs"),
        ("idempotent-sqs", "redis", "rustls", "tls12"),
        ("idempotent-sqs", "otel", "reqwest", "rustls"),
        ("idempotent-sqs-postgres", "", "rustls", "aws_lc_rs"),
        ("axum-payments", "", "rustls", "aws_lc_rs"),
    ] {
        let lines = tree("{lib} {f}", package, features);
        let found = lines.iter().find_map(|line| line.strip_prefix(crate_name)?.strip_prefix(' '));
        assert!(found.is_some_and(|enabled| enabled.split(',').any(|one| one == feature)), "{package}: {found:?}");
    }
}

#[test]
fn rustls_with_aws_lc_is_the_only_tls_stack() {
    for package in ["idempotent-sqs", "idempotent-sqs-postgres", "ledger"] {
        let crates = dependencies(package, if package == "idempotent-sqs" { "webhook,s3,otel" } else { "" });
        assert!(crates.contains("rustls"), "{package}");
        for name in ["ring", "native_tls", "openssl"] {
            assert!(!crates.contains(name), "{package} links {name}");
        }
    }
}
