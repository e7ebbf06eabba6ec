//! Paths are those of asking the engine that decides requests all questions one by one.

use super::*;

/// A universe, and the sets that decide in it.
struct OneByOne<'o> {
    objects: &'o Objects,
    all: PolicySet,
    namespaces: Vec<String>,
    subjects: Vec<BruteActor>,
    asked: RefCell<HashMap<BruteActor, Rc<Asked>>>,
    steps: RefCell<BTreeMap<(BruteActor, bool), BTreeSet<BruteActor>>>,
}

/// What is asked about one actor.
struct Asked {
    /// Without Deny policies, and with the role that they have.
    granting: PolicySet,
    members: Vec<User<'static>>,
    /// Whether a request is granted, and whether it is left to some member.
    known: RefCell<HashMap<String, (bool, Option<bool>)>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum BruteActor {
    User(String),
    Group(String),
    Account(String, String),
    /// Namespace and name of a role, and in which namespace it is had; none: everywhere.
    Holder(Option<String>, String, Option<String>),
}

const GROUPS: [&str; 3] = ["dev", "ops", "system:serviceaccounts:a"];
const EVERYBODY: &str = "system:authenticated";

impl BruteActor {
    fn of(identity: &Identity) -> Option<Self> {
        let name = identity.name.clone();
        match identity.kind {
            "User" => Some(Self::User(name)),
            "Group" => Some(Self::Group(name)),
            "ServiceAccount" => Some(Self::Account(identity.namespace.clone(), name)),
            _ => None,
        }
    }

    fn admin() -> Self {
        Self::Holder(None, "cluster-admin".to_owned(), None)
    }

    fn masters() -> Self {
        Self::Group("system:masters".to_owned())
    }

    /// As a request comes from them.
    fn user(&self) -> User<'static> {
        match self {
            Self::User(name) => user(name, &[EVERYBODY]),
            Self::Group(group) => user("somebody", &[group, EVERYBODY]),
            Self::Account(namespace, name) => {
                let own = format!("system:serviceaccounts:{namespace}");
                let name = format!("system:serviceaccount:{namespace}:{name}");
                user(&name, &["system:serviceaccounts", &own, EVERYBODY])
            }
            Self::Holder(..) => user("somebody", &[EVERYBODY]),
        }
    }

    /// In all groups in which they may be, and by each name of `users` that they may have.
    fn members(&self, users: &[&Subject]) -> Vec<User<'static>> {
        let own = self.user();
        let mut members = vec![own.clone()];
        let is_of = |user: &User<'_>| {
            let mut groups = own.groups.iter();
            groups.all(|group| user.groups.contains(group))
        };
        for subject in users
            .iter()
            .filter(|_| matches!(self, Self::Group(_) | Self::Holder(..)))
        {
            match subject.kind {
                SubjectKind::User => members.push(User {
                    name: subject.name.clone().into(),
                    ..own.clone()
                }),
                SubjectKind::ServiceAccount => {
                    let account = Self::Account(subject.namespace.clone(), subject.name.clone());
                    members.extend(Some(account.user()).filter(is_of));
                }
                SubjectKind::Group => {}
            }
        }
        let accounts = "system:serviceaccount:";
        for group in GROUPS {
            for mut member in members.clone() {
                if !member.name.starts_with(accounts) {
                    member.groups.push(group.into());
                    members.push(member);
                }
            }
        }
        // Whom no Deny holds up.
        let is_anybody = matches!(self, Self::Holder(..));
        members.extend(is_anybody.then(|| user("system:node:n1", &["system:nodes", EVERYBODY])));
        members
    }
}

impl<'o> OneByOne<'o> {
    fn new(objects: &'o Objects) -> Self {
        let mut namespaces: BTreeSet<String> = OWN_NAMESPACES.map(str::to_owned).into();
        let mut subjects: BTreeSet<BruteActor> = ["system:masters", "system:nodes", "system:bootstrappers"]
            .map(|group| BruteActor::Group(group.to_owned()))
            .into();
        let of_bindings = objects.bindings.iter().flat_map(|binding| &binding.subjects);
        let allowing = objects
            .policies
            .iter()
            .filter(|policy| policy.effect == Effect::Allow);
        for Subject {
            kind,
            name,
            namespace,
        } in of_bindings.chain(allowing.flat_map(|policy| &policy.subjects))
        {
            namespaces.insert(namespace.clone());
            subjects.insert(match kind {
                SubjectKind::User => BruteActor::User(name.clone()),
                SubjectKind::Group => BruteActor::Group(name.clone()),
                SubjectKind::ServiceAccount => BruteActor::Account(namespace.clone(), name.clone()),
            });
        }
        namespaces.extend(objects.bindings.iter().map(|binding| binding.namespace.clone()));
        for policy in &objects.policies {
            for rule in &policy.resource_rules {
                let named = rule.namespaces.iter().map(ToString::to_string);
                namespaces.extend(named.filter(|name| !name.ends_with('*')));
            }
        }
        namespaces.remove("");
        let default = |namespace: &String| BruteActor::Account(namespace.clone(), "default".to_owned());
        subjects.extend(namespaces.iter().map(default));
        Self {
            all: fixtures::set(objects.clone()),
            objects,
            namespaces: namespaces.into_iter().collect(),
            subjects: subjects.into_iter().collect(),
            asked: RefCell::default(),
            steps: RefCell::default(),
        }
    }

    fn asked(&self, actor: &BruteActor) -> Rc<Asked> {
        if let Some(asked) = self.asked.borrow().get(actor) {
            return Rc::clone(asked);
        }
        let policies = self.objects.policies.iter();
        let users: Vec<&Subject> = policies.flat_map(|policy| &policy.subjects).collect();
        let asked = Rc::new(Asked {
            granting: self.granting_set(actor),
            members: actor.members(&users),
            known: RefCell::default(),
        });
        self.asked.borrow_mut().insert(actor.clone(), Rc::clone(&asked));
        asked
    }

    /// The set without Deny policies, and with the role that they have.
    fn granting_set(&self, actor: &BruteActor) -> PolicySet {
        let mut objects = self.objects.clone();
        objects.policies.retain(|policy| policy.effect == Effect::Allow);
        if let BruteActor::Holder(namespace, name, within) = actor {
            objects
                .roles
                .push(role("", "cluster-admin", vec![grants(&["*"], &["*"])]));
            let kind = match namespace {
                Some(_) => RoleKind::Role,
                None => RoleKind::ClusterRole,
            };
            let place = within.clone().unwrap_or_default();
            let name = name.clone();
            objects.bindings.push(Binding {
                role: RoleRef { kind, name },
                ..binding(&place, "own", "", vec![Subject::user("somebody")])
            });
        }
        fixtures::set(objects)
    }

    fn is_allowed(&self, actor: &BruteActor, request: &str, with_denies: bool) -> bool {
        if *actor == BruteActor::masters() {
            return true;
        }
        let asked = self.asked(actor);
        let known = asked.known.borrow().get(request).copied();
        let (is_granted, left) = known.unwrap_or_else(|| {
            (
                decision(&asked.granting, actor.user(), request) == Decision::Allow,
                None,
            )
        });
        let is_left = || {
            let mut members = asked.members.iter();
            members.any(|member| decision(&self.all, member.clone(), request) != Decision::Deny)
        };
        let left = match with_denies && is_granted {
            true => left.or_else(|| Some(is_left())),
            false => left,
        };
        asked
            .known
            .borrow_mut()
            .insert(request.to_owned(), (is_granted, left));
        is_granted && (!with_denies || left == Some(true))
    }

    fn may(
        &self,
        actor: &BruteActor,
        question: &Question,
        (place, target): (&str, &str),
        with_denies: bool,
    ) -> bool {
        let Question {
            verb,
            group,
            resource,
            ..
        } = question;
        let place = if question.is_namespaced { place } else { "-" };
        let names = match question.name {
            QuestionName::None => vec![""],
            QuestionName::Is(name) => vec![name],
            QuestionName::Target => vec![target],
            QuestionName::Any => vec!["other", "", "x", "r0", "alice", "cluster-admin"],
        };
        let dot = if group.is_empty() { "" } else { "." };
        let slash = if question.subresource.is_empty() { "" } else { "/" };
        let what = format!(
            "{verb} {resource}{dot}{group}{slash}{} {place}",
            question.subresource
        );
        let mut names = names.iter();
        names.any(|name| self.is_allowed(actor, &format!("{what} {name}"), with_denies))
    }

    fn may_all(&self, actor: &BruteActor, kind: &StepKind, place: (&str, &str), with_denies: bool) -> bool {
        let mut needs = kind.needs.iter();
        needs.all(|need| {
            need.iter()
                .any(|question| self.may(actor, question, place, with_denies))
        })
    }

    fn is_admin(&self, actor: &BruteActor) -> bool {
        let asked = self.asked(actor);
        let places = self.namespaces.iter().map(String::as_str).chain(["-", "unknown"]);
        let mut requests =
            places.flat_map(|place| ["", "x", "other"].map(|name| format!("* *.* {place} {name}")));
        *actor == BruteActor::masters()
            || *actor == BruteActor::admin()
            || requests.all(|request| {
                let is_denied =
                    |user: &User<'static>| decision(&self.all, user.clone(), &request) == Decision::Deny;
                decision(&asked.granting, actor.user(), &request) == Decision::Allow
                    && !asked.members.iter().any(is_denied)
            })
    }

    /// Whom `actor` becomes by one step.
    fn next(&self, actor: &BruteActor, with_denies: bool) -> BTreeSet<BruteActor> {
        let key = (actor.clone(), with_denies);
        if let Some(known) = self.steps.borrow().get(&key) {
            return known.clone();
        }
        let found = self.asked_one_by_one(actor, with_denies);
        self.steps.borrow_mut().insert(key, found.clone());
        found
    }

    fn asked_one_by_one(&self, actor: &BruteActor, with_denies: bool) -> BTreeSet<BruteActor> {
        let mut found = BTreeSet::new();
        let accounts = || {
            self.subjects.iter().filter_map(|subject| match subject {
                BruteActor::Account(namespace, name) => Some((namespace, name, subject)),
                _ => None,
            })
        };
        let is_node = *actor == BruteActor::Group("system:nodes".to_owned());
        for kind in STEP_KINDS {
            let may = |place: &str, target: &str| self.may_all(actor, kind, (place, target), with_denies);
            let named = |wanted: fn(&BruteActor) -> Option<&String>| {
                let subjects = self.subjects.iter();
                subjects
                    .filter(move |subject| wanted(subject).is_some_and(|name| may("-", name)))
                    .cloned()
            };
            let user = |subject: &BruteActor| matches!(subject, BruteActor::User(_));
            let cluster_roles = || {
                let roles = self.objects.roles.iter().filter(|role| role.namespace.is_empty());
                roles
                    .map(|role| role.name.clone())
                    .chain(["cluster-admin".to_owned()])
            };
            match kind.gives {
                StepTarget::AccountsOfNamespace => {
                    found.extend(accounts().filter(|one| may(one.0, "")).map(|one| one.2.clone()));
                }
                StepTarget::Controller(namespace, name)
                | StepTarget::ControllerOfNamespace(namespace, name) => {
                    let own = [namespace.to_owned()];
                    let places = if matches!(kind.gives, StepTarget::Controller(..)) {
                        &self.namespaces[..]
                    } else {
                        &own
                    };
                    let may = places.iter().any(|place| may(place, ""));
                    let is_it = |one: &(&String, &String, _)| may && one.0 == namespace && one.1 == name;
                    found.extend(accounts().filter(is_it).map(|one| one.2.clone()));
                }
                StepTarget::Account => found.extend(
                    accounts()
                        .filter(|one| may(one.0, one.1))
                        .map(|one| one.2.clone()),
                ),
                StepTarget::AllAccounts if may("-", "") => found.extend(accounts().map(|one| one.2.clone())),
                StepTarget::AccountsOnNode if is_node => found.extend(accounts().map(|one| one.2.clone())),
                StepTarget::AllAccounts | StepTarget::AccountsOnNode => {}
                StepTarget::User => found.extend(named(|subject| match subject {
                    BruteActor::User(name) => Some(name),
                    _ => None,
                })),
                StepTarget::Group => found.extend(named(|subject| match subject {
                    BruteActor::Group(name) => Some(name),
                    _ => None,
                })),
                StepTarget::UsersAndGroups if may("-", "") => {
                    let masters = BruteActor::masters();
                    let is_one =
                        |subject: &&BruteActor| user(subject) || matches!(subject, BruteActor::Group(_));
                    found.extend(
                        self.subjects
                            .iter()
                            .filter(is_one)
                            .filter(|one| **one != masters)
                            .cloned(),
                    );
                }
                StepTarget::Nodes if may("-", "") => {
                    _ = found.insert(BruteActor::Group("system:nodes".to_owned()))
                }
                StepTarget::Bootstrappers if may("kube-system", "") => {
                    found.insert(BruteActor::Group("system:bootstrappers".to_owned()));
                }
                StepTarget::ClusterAdmin if may("-", "") => _ = found.insert(BruteActor::admin()),
                StepTarget::UsersAndGroups
                | StepTarget::Nodes
                | StepTarget::Bootstrappers
                | StepTarget::ClusterAdmin => {}
                StepTarget::ClusterRole => found.extend(
                    cluster_roles()
                        .filter(|name| may("-", name))
                        .map(|name| BruteActor::Holder(None, name, None)),
                ),
                StepTarget::ClusterRoleInNamespace => {
                    for place in &self.namespaces {
                        let roles = cluster_roles().filter(|name| may(place, name));
                        found.extend(roles.map(|name| BruteActor::Holder(None, name, Some(place.clone()))));
                    }
                }
                StepTarget::Role => {
                    let roles = self.objects.roles.iter();
                    let roles =
                        roles.filter(|role| !role.namespace.is_empty() && may(&role.namespace, &role.name));
                    found.extend(roles.map(|role| {
                        let place = Some(role.namespace.clone());
                        BruteActor::Holder(place.clone(), role.name.clone(), place)
                    }));
                }
                StepTarget::WidenedClusterRole | StepTarget::WidenedRole => {
                    found.extend(self.widened(actor, kind, with_denies));
                }
            }
        }
        found
    }

    fn widened(&self, actor: &BruteActor, kind: &StepKind, with_denies: bool) -> BTreeSet<BruteActor> {
        let of = match kind.gives {
            StepTarget::WidenedRole => RoleKind::Role,
            _ => RoleKind::ClusterRole,
        };
        let user = actor.user();
        let applies = |binding: &&Binding| {
            crate::authorization::rbac::applying_subject(&binding.subjects, &user, &binding.namespace)
                .is_some()
        };
        let bindings = self
            .objects
            .bindings
            .iter()
            .filter(|_| !matches!(actor, BruteActor::Holder(..)));
        let exists = |binding: &&Binding| {
            let place = if binding.role.kind == RoleKind::Role {
                &binding.namespace
            } else {
                ""
            };
            let is_bound = binding.role.kind == RoleKind::ClusterRole || !binding.namespace.is_empty();
            let mut roles = self.objects.roles.iter();
            is_bound && roles.any(|role| role.name == binding.role.name && role.namespace == place)
        };
        let bound = bindings.filter(applies).filter(exists).map(|binding| {
            let place = Some(binding.namespace.clone()).filter(|place| !place.is_empty());
            (binding.role.clone(), place)
        });
        let own = match actor {
            BruteActor::Holder(namespace, name, place) => Some((
                RoleRef {
                    kind: if namespace.is_some() {
                        RoleKind::Role
                    } else {
                        RoleKind::ClusterRole
                    },
                    name: name.clone(),
                },
                place.clone(),
            )),
            _ => None,
        };
        let held = bound.chain(own).filter(|(role, place)| {
            role.kind == of
                && self.may_all(
                    actor,
                    kind,
                    (place.as_deref().unwrap_or("-"), &role.name),
                    with_denies,
                )
        });
        held.map(|(_, place)| BruteActor::Holder(None, "cluster-admin".to_owned(), place))
            .collect()
    }

    /// Whom `from` can become, and by how many steps.
    fn reached(&self, from: &BruteActor, with_denies: bool) -> BTreeMap<BruteActor, usize> {
        let mut found = BTreeMap::from([(from.clone(), 0)]);
        let mut reached = vec![from.clone()];
        while !reached.is_empty() {
            let next: BTreeSet<BruteActor> = reached
                .iter()
                .flat_map(|one| self.next(one, with_denies))
                .collect();
            reached = next.into_iter().filter(|one| !found.contains_key(one)).collect();
            let steps = found.values().max().unwrap() + 1;
            found.extend(reached.iter().map(|one| (one.clone(), steps)));
        }
        found
    }
}

fn decision(set: &PolicySet, user: User<'static>, request: &str) -> Decision {
    set.authorize(&asks(user, request), Time::UNIX_EPOCH).decision
}

/// Small numbers, always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What the rules of a universe are about; each makes some step possible.
const CAPABILITIES: [(&[&str], &[&str]); 17] = [
    (&["create"], &["pods"]),
    (&["update", "patch"], &["deployments", "pods"]),
    (&["create"], &["pods/exec", "serviceaccounts/token"]),
    (&["create"], &["serviceaccounts/token"]),
    (&["get", "list"], &["secrets"]),
    (&["create"], &["secrets"]),
    (&["impersonate"], &["users", "groups"]),
    (&["impersonate"], &["serviceaccounts"]),
    (&["impersonate:user-info"], &["users"]),
    (&["bind"], &["clusterroles"]),
    (&["bind"], &["roles"]),
    (&["create"], &["rolebindings"]),
    (&["create", "update"], &["clusterrolebindings"]),
    (&["escalate", "update"], &["clusterroles", "roles"]),
    (
        &["approve", "create", "update"],
        &[
            "signers",
            "certificatesigningrequests",
            "certificatesigningrequests/approval",
        ],
    ),
    (&["get"], &["nodes/proxy"]),
    (&["*"], &["*"]),
];
const NAMES: [&[&str]; 12] = [
    &[],
    &[],
    &[],
    &[],
    &[],
    &[],
    &[],
    &[],
    &["x"],
    &["r0", "r1"],
    &["alice", "dev"],
    &["cluster-admin"],
];
const PLACES: [&str; 4] = ["", "a", "b", "kube-system"];

fn a_subject(numbers: &mut Numbers) -> Subject {
    match numbers.below(6) {
        0 => Subject::user("alice"),
        1 => Subject::user("bob"),
        2 => Subject::group("dev"),
        3 => Subject::group("system:serviceaccounts:a"),
        4 => Subject::service_account("b", "default"),
        _ => Subject::service_account("a", "x"),
    }
}

fn a_universe(numbers: &mut Numbers) -> Objects {
    let mut objects = Objects::default();
    for number in 0..4 {
        let rules = (0..2 + numbers.below(2)).map(|_| {
            let (verbs, resources) = numbers.one_of(&CAPABILITIES);
            Rule {
                resource_names: texts(numbers.one_of(&NAMES)),
                ..grants(verbs, resources)
            }
        });
        let rules = rules.collect();
        objects.roles.push(role(
            ["", "", "a", "b"][number],
            &format!("r{}", number % 2),
            rules,
        ));
    }
    for number in 0..9 {
        let place = numbers.one_of(&PLACES);
        let name = numbers.one_of(&["r0", "r1"]);
        let kind = numbers.one_of(&[RoleKind::ClusterRole, RoleKind::ClusterRole, RoleKind::Role]);
        let subjects = vec![a_subject(numbers)];
        objects.bindings.push(Binding {
            role: RoleRef {
                kind,
                name: name.to_owned(),
            },
            ..binding(place, &format!("b{number}"), "", subjects)
        });
    }
    for number in 0..1 + numbers.below(3) {
        let policy = a_policy(numbers, number, &objects.roles);
        objects.policies.push(policy);
    }
    objects
}

fn a_policy(numbers: &mut Numbers, number: usize, roles: &[Role]) -> AuthorizationPolicy {
    let effect = numbers.one_of(&[Effect::Deny, Effect::Deny, Effect::Allow]);
    let (verbs, resources) = numbers.one_of(&CAPABILITIES);
    let namespaces: &[&str] = numbers.one_of(&[&[], &[], &["a"], &["b", "kube-*"]]);
    let mut made = policy(effect, &format!("p{number}"));
    if effect == Effect::Allow || numbers.below(2) == 0 {
        made.subjects = vec![a_subject(numbers)];
    }
    if numbers.below(4) == 0 {
        made.exclude_subjects = vec![Subject::group(numbers.one_of(&GROUPS))];
    }
    // A Deny that holds up something.
    let granted = roles[numbers.below(roles.len())].rules.first();
    let granted = granted.filter(|rule| effect == Effect::Deny && !rule.verbs.includes("*"));
    let resources = granted.map_or(resources.to_vec(), |rule| rule.resources.named().collect());
    let verbs = granted.map_or(verbs.to_vec(), |rule| rule.verbs.named().collect());
    made.resource_rules = vec![ResourceRule {
        names: texts(numbers.one_of(&NAMES)),
        namespaces: fixtures::patterns(namespaces),
        ..rule(&verbs, &resources)
    }];
    made
}

/// How many paths of one universe are possible, are refuted, and have several steps.
fn compared_with_questions(seed: u64) -> [usize; 3] {
    let objects = a_universe(&mut Numbers(seed));
    let brute = OneByOne::new(&objects);
    let of_one = |subject: &BruteActor| match subject {
        BruteActor::User(name) => Subject::user(name),
        BruteActor::Group(name) => Subject::group(name),
        BruteActor::Account(namespace, name) => Subject::service_account(namespace, name),
        BruteActor::Holder(..) => panic!("no subject"),
    };
    let (mut taken, mut refuted, mut long) = (0, 0, 0);
    let everywhere = find(&objects, None, EscalationTarget::ClusterAdmin);
    let system = |subject: &&BruteActor| matches!(subject, BruteActor::Group(name) if name.starts_with("system:") && !name.contains("accounts"));
    for subject in brute.subjects.iter().filter(|subject| !system(subject)) {
        let query = EscalationQuery {
            from: Some(of_one(subject)),
            to: EscalationTarget::Everybody,
            accounts: Vec::new(),
        };
        let found = brute
            .all
            .escalations(&query, Time::UNIX_EPOCH, Deadline::NEVER)
            .unwrap();
        let steps = |paths: &[EscalationPath]| -> BTreeMap<BruteActor, usize> {
            let one = |path: &EscalationPath| Some((BruteActor::of(&path.to)?, path.steps.len()));
            paths.iter().filter_map(one).collect()
        };
        let is_other = |one: &BruteActor| !matches!(one, BruteActor::Holder(..)) && one != subject;
        let expected = brute.reached(subject, true);
        let mut others = expected.clone();
        others.retain(|one, _| is_other(one));
        assert_eq!(
            steps(&found.paths),
            others,
            "seed {seed}, from {subject:?}: {objects:?}"
        );
        let mut without_denies = brute.reached(subject, false);
        without_denies.retain(|one, _| is_other(one) && !others.contains_key(one));
        assert_eq!(
            steps(&found.refuted),
            without_denies,
            "seed {seed}, from {subject:?}: {objects:?}"
        );
        refuted += without_denies.len();
        // Who reaches a subject that may do everything.
        let nearest = expected
            .iter()
            .filter(|(one, _)| brute.is_admin(one))
            .map(|(_, steps)| *steps)
            .min();
        let listed = everywhere
            .paths
            .iter()
            .find(|path| BruteActor::of(&path.from).as_ref() == Some(subject));
        assert_eq!(
            listed.map(|path| path.steps.len()),
            nearest.filter(|steps| *steps > 0),
            "seed {seed}, {subject:?}: {objects:?}"
        );
        taken += others.len();
        long += others.values().filter(|steps| **steps > 1).count();
    }
    [taken, refuted, long]
}

#[test]
fn paths_are_those_of_asking_all_questions_one_by_one() {
    let mut all = [0; 3];
    for seed in 0..fixtures::cases(20).cases {
        let one = compared_with_questions(seed.into());
        all = std::array::from_fn(|at| all[at] + one[at]);
    }
    let [taken, refuted, long] = all;
    assert!(
        taken > 300 && refuted > 0 && long > 10,
        "{taken} {refuted} {long}"
    );
}
