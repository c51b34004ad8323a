//! The form of the Lua scripts in `lua/`: their documentation, replies and order of commands.

use std::fs;

use harness::workspace;

const SCRIPTS: [&str; 5] = ["acquire", "complete", "fail", "forget", "release"];

#[test]
fn each_script_documents_its_input_and_output_and_has_fewer_than_45_lines() {
    for name in SCRIPTS {
        let script = fs::read_to_string(workspace(&format!("lua/{name}.lua"))).unwrap();
        let (header, body): (Vec<_>, Vec<_>) = script.lines().partition(|line| line.trim_start().starts_with("--"));
        let header = header.join("\n");
        assert!(header.starts_with(&format!("-- {name}: ")), "{name}");
        // The first line may be flags for Redis, which are not Lua code.
        let body = body.into_iter().filter(|line| !line.starts_with("#!"));
        for part in ["KEYS[1..n]", "ARGV[1]", "Output: one string for each key"] {
            assert!(header.contains(part), "the header of {name} lacks {part}");
        }
        let body: Vec<_> = body.filter(|line| !line.is_empty()).collect();
        assert!(body.len() < 45, "{name} has {} lines", body.len());
        assert!(
            body[0].starts_with("local ") && body[0].contains("ARGV[1]"),
            "{name} does not start with its arguments"
        );
        assert!(body.iter().all(|line| line.len() <= 120), "{name} has a line of more than 120 bytes");
    }
}

#[test]
fn each_script_returns_exactly_the_replies_of_its_header() {
    let is_word = |word: &&str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    for name in SCRIPTS {
        let script = fs::read_to_string(workspace(&format!("lua/{name}.lua"))).unwrap();
        let (header, body): (Vec<_>, Vec<_>) = script.lines().partition(|line| line.trim_start().starts_with("--"));
        let output = header.join("\n");
        let output = output.split("Output:").nth(1).unwrap().split("--\n").next().unwrap();
        let mut documented: Vec<_> = output
            .lines()
            .filter_map(|line| line.strip_prefix("--   "))
            .flat_map(|line| line.split(" | "))
            .filter_map(|reply| reply.trim_start().split(' ').next())
            .filter(is_word)
            .collect();
        let code = body.join("\n");
        let mut returned: Vec<_> = code
            .split('\'')
            .skip(1)
            .step_by(2)
            .filter_map(|literal| literal.split(' ').next())
            .filter(is_word)
            .filter(|word| !["TIME", "MGET", "GET", "SET", "DEL", "PXAT", "KEEPTTL"].contains(word))
            .collect();
        documented.sort_unstable();
        documented.dedup();
        returned.sort_unstable();
        returned.dedup();
        assert_eq!(documented, returned, "{name}");
    }
}

#[test]
fn each_script_reads_the_time_first_and_reads_a_record_before_it_writes() {
    for name in SCRIPTS {
        let script = fs::read_to_string(workspace(&format!("lua/{name}.lua"))).unwrap();
        assert_eq!(script.contains("'DEL'"), name == "forget", "only forget deletes records: {name}");
        if ["acquire", "forget"].contains(&name) {
            assert_eq!(script.matches("'TIME'").count(), 1, "{name} calls TIME once");
            assert!(script.find("'TIME'") < script.find("'GET'"), "{name} calls TIME before GET");
        }
        let (mut has_read, mut has_compared) = (false, false);
        for line in script.lines().filter(|line| !line.starts_with("--")) {
            // A SET with NX also reads.
            has_read |= line.contains("'GET'") || line.contains("'NX'");
            assert!(has_read || !line.contains("'SET'"), "{name} writes before it reads");
            has_compared |= line.contains("seen_of(record) ~= seen then return");
            assert!(
                has_compared || !line.contains("'DEL'"),
                "{name} deletes before it compares the record with the one inspected"
            );
        }
    }
}
