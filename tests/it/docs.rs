//! The pages in `docs/` match the code: metrics of outcomes, names of tests, and links.

use std::fs;
use std::path::{Path, PathBuf};

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
    let is_source = |path: &Path| path.extension().is_some_and(|extension| extension == "rs" || extension == "py");
    let sources = ["src", "tests", "crates", "examples"].into_iter().flat_map(|folder| files(&workspace(folder)));
    let tests: String = sources.filter(|path| is_source(path)).map(|path| fs::read_to_string(path).unwrap()).collect();
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

#[test]
fn each_link_of_a_page_leads_to_a_file_and_a_heading() {
    let root = fs::read_dir(workspace("")).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let folders = ["docs", "events", "crates", "examples"].into_iter().flat_map(|folder| files(&workspace(folder)));
    let pages = root.chain(folders).filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let (mut links, mut broken) = (0, Vec::new());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        // Code contains no links.
        let text: String = text.split('`').step_by(2).collect();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        for target in targets.filter(|target| !target.contains("://")) {
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let is_right = file.exists()
                && (heading.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).iter().any(|a| a == heading));
            if !is_right {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(links > 300, "only {links} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The anchors that GitHub gives the headings of a page. The headings of a page differ.
fn anchors(page: &str) -> Vec<String> {
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let mut is_code = false;
    let headings = page.lines().filter(|line| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code && line.starts_with('#')
    });
    let text = |line: &str| line.trim_start_matches('#').trim().to_lowercase();
    headings.map(|line| text(line).chars().filter(is_kept).collect::<String>().replace(' ', "-")).collect()
}

/// The files in this folder and in those below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files
}
