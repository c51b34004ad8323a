//! The pages in `docs/` match the code: metrics of outcomes, and names of tests.

use std::fs;

use harness::workspace;
use idempotent_sqs::sqs::{DeadLetterOutcome, MessageOutcome};

#[test]
fn the_metrics_page_describes_a_metric_for_each_outcome() {
    let page = fs::read_to_string(workspace("docs/metrics.md")).unwrap();
    let of_messages = MessageOutcome::ALL.into_iter().map(MessageOutcome::metric);
    let of_dead_letters = DeadLetterOutcome::ALL.into_iter().map(DeadLetterOutcome::metric);
    for metric in of_messages.chain(of_dead_letters) {
        assert!(page.contains(&format!("`{metric}`")), "docs/metrics.md does not describe {metric}");
    }
}

#[test]
fn each_test_named_in_the_docs_exists() {
    let pages = ["docs/faults.md", "docs/inbox.md", "docs/evidence.md", "docs/defects.md"]
        .map(|page| fs::read_to_string(workspace(page)).unwrap());
    let page = pages.join("\n");
    let mut tests = String::new();
    let mut folders: Vec<_> = ["src", "tests", "crates", "examples"].map(workspace).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "py") {
                tests += &fs::read_to_string(path).unwrap();
            }
        }
    }
    // A test in the root of its binary and one in Python have no path. Type paths start with an upper-case letter, and
    // commands and code blocks contain white space.
    let is_test = |name: &&str| {
        let is_name = name.contains("::") || name.matches('_').count() > 3;
        is_name && name.starts_with(char::is_lowercase) && !name.contains(char::is_whitespace)
    };
    let names: Vec<_> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(names.len() > 30);
    for name in names {
        let test = name.rsplit("::").next().unwrap();
        let keyword = if test.starts_with("test_") { "def" } else { "fn" };
        // A name that ends in `…` stands for all tests with this prefix, and one that ends in `::` for a module.
        let prefix = test.strip_suffix('…').map_or_else(|| format!("{test}("), str::to_owned);
        assert!(test.is_empty() || tests.contains(&format!("{keyword} {prefix}")), "{name}");
    }
}
