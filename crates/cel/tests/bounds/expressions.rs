//! Expressions that are as bad as they can be within the limits of length and nesting: few
//! characters that stand for much.

use portcullis_cel::MAX_LENGTH;

/// A generator of numbers that depend on a seed alone (splitmix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }
}

/// An expression of this seed, no longer than one may be. `object` is a variable of any type,
/// `texts` a list of texts.
pub(crate) fn expression(seed: u64) -> String {
    let mut maker = Maker {
        numbers: Numbers::of(seed),
        names: 0,
    };
    let mut text = maker.any(0);
    let wraps = maker.numbers.below(4);
    for _ in 0..wraps {
        text = maker.multiplied(&text);
    }
    if text.len() > MAX_LENGTH {
        maker.leaf().to_owned()
    } else {
        text
    }
}

struct Maker {
    numbers: Numbers,
    names: usize,
}

/// Patterns: long automata, many alternatives, deep groups.
const PATTERNS: [&str; 10] = [
    r"\\pL{900}",
    r"(\\pL|\\pN){200}",
    "(a{100}){10}",
    "[^a]*b.{300}c",
    "((((((a?){9}){9}){9}){9}))",
    "(?i)[a-z\u{17f}]{500}",
    "a|b|c|d|e|ab|abc",
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    r"(\\w+\\s){1,50}",
    "(x+x+)+y",
];

/// What a chain may go on with; `@` is a new name.
const LINKS: [&str; 32] = [
    ".map(@,{@:@})",
    ".map(@,[@,@])",
    ".map(@,@+@)",
    ".map(@,[@])",
    ".map(@,@==@)",
    ".map(@,[@,@].flatten())",
    ".map(@,dyn([@,@]))",
    ".map(@,{'k':@,'l':@})",
    ".map(@,optional.of([@,@]))",
    ".map(@,'%s%s'.format([@,@]))",
    ".map(@,string(@)+string(@))",
    ".map(@,[@].transformMap(i,v,v))",
    ".map(@,{'a':@}.transformMapEntry(k,v,{k+'b':v,k+'c':v}))",
    ".map(@,[@,@].distinct())",
    ".map(@,@.map(z,[z,z]))",
    ".filter(@,[@,@]==[@,@])",
    ".sortBy(@,[@,@].size())",
    ".all(@,[@,@] in [[@,@]])",
    ".exists(@,@==[])",
    ".exists_one(@,sets.contains([@],[@]))",
    ".map(@,[@,@].reverse())",
    ".map(@,[@,@,@].slice(0,2))",
    ".map(@,lists.range(900))",
    ".map(@,[@].join('0123456789'))",
    ".map(@,type(@))",
    ".map(@,['a'].map(y,y.replace('','0123456789')))",
    ".map(@,@.split(''))",
    ".map(@,'a'.replace('a','0123456789'))",
    ".optMap(@,[@,@])",
    ".first().optMap(@,[@,@])",
    ".map(@,@.findAll('.'))",
    ".map(@,[@]+[@]+[@])",
];

/// Those that make a type or a value much larger, again each time.
const GROWING: [&str; 6] = [
    ".map(@,{@:@})",
    ".map(@,[{@:@},{@:@}])",
    ".map(@,optional.of({@:@}))",
    ".map(@,@+@)",
    ".map(@,[@,@].flatten())",
    ".map(@,[@,@,@].join())",
];

/// What they begin with.
const SEEDS: [&str; 5] = ["[0]", "[[]]", "[lists.range(1000)]", "['0123456789']", "[texts]"];

/// What is put around an expression, at `#`; `@` is a new name.
const WRAPS: [&str; 16] = [
    "[#].all(@,#==@)",
    "[[]].all(@,@==[] && #==#)",
    "dyn(#)==dyn(#)",
    "[#,#]==[#,#]",
    "{'a':#}=={'a':#}",
    "[#].map(@,#)",
    "'%s'.format([#])",
    "(object.a ? # : #)",
    "lists.range(500).map(@,#)",
    "lists.range(200).exists(@,[#]==[@])",
    "[#].indexOf(#)",
    "#.size() > 0 || #.size() < 9",
    "# in [#,#]",
    "has(object.a) && #==#",
    "[#,#].map(@,[@,#])",
    "{#:#}",
];

const LEAVES: [&str; 14] = [
    "[0]",
    "[]",
    "[[]]",
    "['0123456789']",
    "{}",
    "object",
    "object.list",
    "object.text",
    "texts",
    "1",
    "'abc'",
    "lists.range(1000)",
    "[lists.range(1000)]",
    "optional.of([1])",
];

/// What many of stand in a row.
const SIGNS: [&str; 7] = ["||", "&&", "+", "==", ",", " in ", "<"];

// === impl Maker ===

impl Maker {
    fn leaf(&mut self) -> &'static str {
        self.numbers.pick(&LEAVES)
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("a{}", self.names)
    }

    fn any(&mut self, depth: usize) -> String {
        match self.numbers.below(8) {
            0 if depth < 3 => self.row(depth),
            1 if depth < 3 => self.wrapped(depth),
            2 => self.pattern(),
            3 => self.brackets(),
            4 => self.selections(),
            5 => self.growing(),
            _ => self.chain(depth),
        }
    }

    /// `[0].map(a,{a:a}).map(b,{b:b})…`
    fn chain(&mut self, depth: usize) -> String {
        let mut text = if depth < 3 && self.numbers.below(3) == 0 {
            self.any(depth + 1)
        } else {
            self.leaf().to_owned()
        };
        let only = self.numbers.below(2) == 0;
        let mut link = self.numbers.pick(&LINKS);
        for _ in 0..self.numbers.below(60) {
            if !only {
                link = self.numbers.pick(&LINKS);
            }
            let name = self.name();
            text += &link.replace('@', &name);
        }
        text
    }

    /// A chain of one link that grows.
    fn growing(&mut self) -> String {
        let mut text = self.numbers.pick(&SEEDS).to_owned();
        let link = self.numbers.pick(&GROWING);
        for _ in 0..5 + self.numbers.below(30) {
            let name = self.name();
            text += &link.replace('@', &name);
        }
        text
    }

    /// Many of one thing.
    fn row(&mut self, depth: usize) -> String {
        let one = self.any(depth + 1);
        let sign = self.numbers.pick(&SIGNS);
        let most = (MAX_LENGTH / (one.len() + sign.len())).max(1);
        let count = 1 + self.numbers.below(most);
        let row = vec![one; count].join(sign);
        if sign == "," { format!("[{row}]") } else { row }
    }

    fn wrapped(&mut self, depth: usize) -> String {
        let within = self.any(depth + 1);
        self.multiplied(&within)
    }

    /// An expression with this one in it, several times.
    fn multiplied(&mut self, within: &str) -> String {
        let name = self.name();
        self.numbers.pick(&WRAPS).replace('@', &name).replace('#', within)
    }

    fn pattern(&mut self) -> String {
        let function = self.numbers.pick(&["matches", "find", "findAll"]);
        let pattern = self.numbers.pick(&PATTERNS);
        let text = self.numbers.pick(&["'abc'", "object.text", "texts[0]"]);
        let count = 1 + self.numbers.below(40);
        let calls = (0..count).map(|number| format!("{text}.{function}('{pattern}{number}')"));
        format!("[{}]", calls.collect::<Vec<_>>().join(","))
    }

    /// `[[[…]]]`, `{1:{1:…}}` and the like.
    fn brackets(&mut self) -> String {
        let (open, close) = [
            ("[", "]"),
            ("{1:", "}"),
            ("dyn(", ")"),
            ("optional.of(", ")"),
            ("[1].map(x,", ")"),
            ("'%s'.format([", "])"),
            ("(1+", ")"),
            ("[[1],", "]"),
        ][self.numbers.below(8)];
        let depth = self.numbers.below(95);
        format!("{}{}{}", open.repeat(depth), self.leaf(), close.repeat(depth))
    }

    /// `a.bbb…b.ccc…c`
    fn selections(&mut self) -> String {
        let base = self.numbers.pick(&["object", "unknown", "Object", "texts[0]"]);
        let name = "a".repeat(1 + self.numbers.below(480));
        format!("{base}{}", format!(".{name}").repeat(self.numbers.below(190)))
    }
}
