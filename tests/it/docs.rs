//! The pages in `docs/` match the code: metrics of outcomes, names of tests, and links.

use std::ffi::OsStr;
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
    let has_tests = |page: &PathBuf| {
        let name = page.file_name().unwrap().to_str().unwrap();
        ["faults", "inbox", "evidence", "defects"].iter().any(|start| name.starts_with(start))
    };
    let pages = files(&workspace("docs")).into_iter().filter(has_tests);
    let page: String = pages.map(|page| fs::read_to_string(page).unwrap()).collect();
    let sources = ["src", "tests", "crates", "examples"].into_iter().flat_map(|folder| files(&workspace(folder)));
    let functions: Vec<_> = sources.flat_map(|path| functions(&path)).collect();
    // A test in the root of its binary and one in Python have no path. Type paths start with an upper-case letter, and
    // commands and code blocks contain white space.
    let is_test = |name: &&str| {
        let is_long = name.contains("::") || name.matches('_').count() > 3;
        is_long && name.starts_with(char::is_lowercase) && !name.contains(char::is_whitespace)
    };
    let names: Vec<_> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(names.len() > 30);
    let missing: Vec<_> = names.iter().filter(|name| !functions.iter().any(|path| is_name(name, path))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The paths of the functions in a file, each with the folders and the file as modules.
fn functions(file: &Path) -> Vec<String> {
    let keyword = match file.extension().and_then(OsStr::to_str) {
        Some("rs") => "fn ",
        Some("py") => "def ",
        _ => return Vec::new(),
    };
    let (module, text) = (file.with_extension(""), fs::read_to_string(file).unwrap());
    let module = module.to_str().unwrap().replace('/', "::");
    let names = text.split(keyword).skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    names.map(|name| format!("{module}::{name}")).collect()
}

/// Whether `name` is the end of this path. `…` stands for any text, and a name that ends in `::` for a module.
fn is_name(name: &str, path: &str) -> bool {
    let rest = name.split('…').try_fold(path, |rest, part| rest.split_once(part).map(|(_, after)| after));
    rest.is_some_and(|rest| rest.is_empty() || name.ends_with(['…', ':']))
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
