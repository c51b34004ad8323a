//! Writes switches into the text of a file. Lines keep their numbers.

/// The comments around the code of a switch, by which an error of the compiler is assigned to it.
pub(crate) fn marks(number: u32) -> [String; 2] {
    [format!("/*<{number}*/"), format!("/*{number}>*/")]
}

/// The order of texts that are inserted at the same offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Behind code that ends here: inner code ends first.
    End,
    /// Behind all code that ends here.
    Between,
    /// In front of code that starts here: outer code starts first.
    Start,
}

/// Texts to insert into a file.
#[derive(Default)]
pub(crate) struct Switches {
    /// Offset, place, order and text.
    insertions: Vec<(usize, Place, i64, String)>,
    /// Number of surrounded codes. Outer code is surrounded before inner code.
    surrounded: i64,
}

impl Switches {
    /// Surrounds the code of this range with these texts.
    pub(crate) fn surround(&mut self, (start, end): (usize, usize), number: u32, [before, after]: [String; 2]) {
        let [open, close] = marks(number);
        self.surrounded += 1;
        self.insertions.push((start, Place::Start, self.surrounded, format!("{open}{before}")));
        self.insertions.push((end, Place::End, -self.surrounded, format!("{after}{close}")));
    }

    /// Inserts a text behind all code that ends at this offset.
    pub(crate) fn insert_behind(&mut self, at: usize, text: String) {
        self.insertions.push((at, Place::Between, 0, text));
    }

    /// Inserts a text in front of the code at this offset that is surrounded later.
    pub(crate) fn insert_in_front(&mut self, at: usize, text: String) {
        self.surrounded += 1;
        self.insertions.push((at, Place::Start, self.surrounded, text));
    }

    /// The text of the file with the switches.
    pub(crate) fn apply(mut self, text: &str) -> String {
        self.insertions.sort();
        let (mut switched, mut written) = (String::new(), 0);
        for (at, _, _, inserted) in self.insertions {
            switched.push_str(&text[written..at]);
            switched.push_str(&inserted);
            written = at;
        }
        switched + &text[written..]
    }
}
