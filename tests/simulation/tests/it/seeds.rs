//! Some seeds, and those that found something.

use crate::simulate;

/// Each seed that found something, and what. A seed has the same run as long as the simulation draws the same numbers; after
/// that it is a seed like others.
const FOUND: &[(u64, &str)] = &[
    (7, "a receiver that always took longer than its caller waited: the queue did not drain"),
    (14, "acquire.lua without: the same owner gets the same answer"),
    (21, "the checker missed the fence of a claim without an answer, after Redis's clock went back"),
    (56, "acquire.lua without: used-up attempts apply"),
];

#[test]
fn nothing_is_wrong_in_some_seeds() {
    let (text, is_right) = simulate(&["--seeds", "1", "12"]);
    assert!(is_right, "{text}");
}

#[test]
fn nothing_is_wrong_any_more_in_seeds_that_found_something() {
    for (seed, what) in FOUND {
        let (text, is_right) = simulate(&[&seed.to_string()]);
        assert!(is_right, "{what}: {text}");
    }
}

#[test]
fn two_processes_have_the_same_run_of_a_seed_and_another_of_another_seed() {
    let [one, again, other] = ["5", "5", "6"].map(|seed| simulate(&[seed, "--trace"]).0);
    assert!(one.lines().count() > 500, "too little happened: {one}");
    assert_eq!(one, again);
    assert_ne!(one, other);
}

#[test]
fn a_removed_guard_is_found() {
    for guard in ["acquire: a live lease", "acquire: a takeover", "acquire: an existing record", "acquire: attempts"] {
        let (text, is_found) = simulate(&["--guards", guard, "1", "20"]);
        assert!(is_found, "{text}");
    }
}
