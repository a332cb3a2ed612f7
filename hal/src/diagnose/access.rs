//! Whether this account may open the nodes of cards: their owners, and the group that gives access.

use super::scene::Scene;
use super::{Finding, Status};
use std::os::unix::fs::MetadataExt;

/// A node that drivers open, with its owner, group and mode.
#[derive(Debug, Clone)]
struct Node {
    path: String,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Whether every driver needs the node.
    is_needed: bool,
}

/// The account of this process.
#[derive(Debug, Clone, Default)]
struct Account {
    uid: u32,
    groups: Vec<u32>,
    /// The account's name, if the system lists it.
    name: Option<String>,
    /// Whether the process is in a container.
    in_container: bool,
}

/// A group of `/etc/group`.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// Nodes that this account may not open, with the line that gives access.
pub(super) fn check(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(account) = Account::read(scene) else { return Vec::new() };
    let groups = groups(&scene.text("etc/group").unwrap_or_default());
    let renders = scene.list("dev/dri").into_iter().filter(|name| name.starts_with("renderD"));
    let nodes = renders.map(|name| (format!("dev/dri/{name}"), true));
    let nodes = nodes.chain([("dev/kfd".to_owned(), false)]);
    let nodes = nodes.filter_map(|(path, is_needed)| Node::read(scene, &path, is_needed));
    nodes.filter_map(|node| denied(&node, &account, &groups)).collect()
}

impl Node {
    fn read(scene: &Scene<'_>, path: &str, is_needed: bool) -> Option<Self> {
        let metadata = scene.path(path)?.metadata().ok()?;
        let (mode, uid, gid) = (metadata.mode() & 0o777, metadata.uid(), metadata.gid());
        Some(Self { path: format!("/{path}"), mode, uid, gid, is_needed })
    }

    fn lets_in(&self, account: &Account) -> bool {
        let bits = match account {
            Account { uid: 0, .. } => return true,
            Account { uid, .. } if *uid == self.uid => self.mode >> 6,
            Account { groups, .. } if groups.contains(&self.gid) => self.mode >> 3,
            _ => self.mode,
        };
        bits & 0o6 == 0o6
    }

    /// The line that gives the node other permissions from the next boot on.
    fn rule(&self, rights: &str) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        // The order of cards can change, and with it their numbers.
        let name = if name.starts_with("renderD") { "renderD*" } else { name };
        format!("add to /etc/udev/rules.d: KERNEL==\"{name}\", {rights}")
    }
}

impl Account {
    /// The account by `/proc/self/status`.
    fn read(scene: &Scene<'_>) -> Option<Self> {
        let status = scene.text("proc/self/status")?;
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        let numbers = |text: &str| -> Vec<u32> {
            text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
        };
        // Real, effective, saved and file-system ids.
        let uid = *numbers(field("Uid:")?).get(1)?;
        let mut groups = numbers(field("Groups:").unwrap_or_default());
        groups.extend(numbers(field("Gid:").unwrap_or_default()).get(1));
        let passwd = scene.text("etc/passwd").unwrap_or_default();
        let name = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, number) = (fields.next()?, fields.nth(1)?);
            (number.parse() == Ok(uid)).then(|| name.to_owned())
        });
        let marks = [".dockerenv", "run/.containerenv"];
        let in_container = marks.iter().any(|it| scene.path(it).is_some_and(|path| path.exists()));
        Some(Self { uid, groups, name, in_container })
    }
}

fn groups(text: &str) -> Vec<Group> {
    let group = |line: &str| {
        let mut fields = line.split(':');
        let (name, gid) = (fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?);
        let members = fields.next().unwrap_or_default().split(',');
        let members = members.filter(|it| !it.is_empty()).map(str::to_owned).collect();
        Some(Group { name, gid, members })
    };
    text.lines().filter_map(group).collect()
}

/// Why an account may not open a node, if it may not.
fn denied(node: &Node, account: &Account, groups: &[Group]) -> Option<Finding> {
    if node.lets_in(account) {
        return None;
    }
    let Node { path, mode, gid, is_needed, .. } = node;
    let group = groups.iter().find(|group| group.gid == *gid);
    let owner = group.map_or_else(|| format!("group {gid}"), |it| format!("group {}", it.name));
    let status = if *is_needed { Status::Warn } else { Status::Info };
    let use_of_it = if *is_needed { "" } else { "; ROCm needs it, Mesa's rusticl does not" };
    let said = |why: &str| {
        let message = format!("{path} is for {owner} (mode {mode:o}), and {why}{use_of_it}");
        Finding::new(path, status, message)
    };
    if mode >> 3 & 0o6 != 0o6 {
        let line = node.rule("GROUP=\"render\", MODE=\"0660\"");
        return Some(said("its mode lets no group in").fix(line));
    }
    if account.in_container {
        let line = format!("docker run --device /dev/dri --group-add {gid} …");
        return Some(said("this container was not given that group").fix(line));
    }
    let Some(who) = &account.name else {
        let why = format!(
            "user {} is not in it; usermod cannot add a user that /etc/passwd does not name: have \
             whoever keeps the accounts add it, or make it this user's",
            account.uid
        );
        return Some(
            said(&why).fix(node.rule(&format!("OWNER=\"{}\", MODE=\"0660\"", account.uid))),
        );
    };
    let Some(group) = group else {
        let is_taken = groups.iter().any(|group| group.name == "render");
        let name = if is_taken { format!("render{gid}") } else { "render".to_owned() };
        let line = format!("sudo groupadd --gid {gid} {name} && sudo usermod -aG {name} {who}");
        return Some(said(&format!("{who} is not in it")).fix(line));
    };
    if group.members.contains(who) {
        let why = format!("{who} is in it, but not since this session began");
        return Some(said(&why).fix("log out and in again"));
    }
    let line = format!("sudo usermod -aG {} {who}  # then log in again", group.name);
    Some(said(&format!("{who} is not in it")).fix(line))
}

#[cfg(test)]
mod tests {
    use super::super::scene::tree;
    use super::*;

    #[test]
    fn each_reason_has_its_line() {
        let groups = groups("root:x:0:\nrender:x:109:bob\nvideo:x:44:\nodd\n");
        let ann = Account {
            uid: 1000,
            groups: vec![1000],
            name: Some("ann".into()),
            in_container: false,
        };
        let bob = Account { name: Some("bob".into()), ..ann.clone() };
        let boxed = Account { in_container: true, ..ann.clone() };
        let inside = Account { groups: vec![1000, 109], ..ann.clone() };
        let nameless = Account { name: None, ..ann.clone() };
        let node = |mode, gid, is_needed| Node {
            path: if is_needed { "/dev/dri/renderD128" } else { "/dev/kfd" }.into(),
            mode,
            uid: 0,
            gid,
            is_needed,
        };
        let usual = node(0o660, 109, true);
        for (node, account, expected) in [
            (&usual, &ann, Some(("ann is not in it", "usermod -aG render ann"))),
            (&usual, &bob, Some(("not since this session", "log out and in again"))),
            (&usual, &boxed, Some(("this container", "--group-add 109"))),
            (&usual, &inside, None),
            (&usual, &Account::default(), None),
            (&node(0o666, 109, true), &ann, None),
            (&node(0o600, 109, true), &ann, Some(("no group", "\"renderD*\", GROUP=\"render\""))),
            (&node(0o600, 109, false), &ann, Some(("no group", "\"kfd\", GROUP=\"render\""))),
            (&node(0o660, 109, false), &ann, Some(("rusticl does not", "usermod"))),
            (
                &node(0o660, 7, true),
                &ann,
                Some(("group 7", "--gid 7 render7 && sudo usermod -aG render7")),
            ),
            (
                &usual,
                &nameless,
                Some(("user 1000 is not in it", "\"renderD*\", OWNER=\"1000\", MODE=\"0660\"")),
            ),
            (&node(0o660, 7, true), &nameless, Some(("user 1000", "OWNER=\"1000\""))),
            (
                &node(0o660, 109, false),
                &nameless,
                Some(("user 1000", "\"kfd\", OWNER=\"1000\", MODE=\"0660\"")),
            ),
        ] {
            let found = denied(node, account, &groups);
            match (&found, expected) {
                (None, None) => {}
                (Some(finding), Some((why, line))) => {
                    let fix = finding.fix.as_deref().unwrap_or_default();
                    assert!(finding.message.contains(why) && fix.contains(line), "{finding:?}");
                    assert!(account.name.is_some() || !fix.contains("usermod"), "{finding:?}");
                }
                _ => panic!("{node:?} {account:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn account_and_groups_are_read_from_the_tree() {
        let (root, options) = tree(&[
            (
                "proc/self/status",
                "Name:\tx\nUid:\t7\t4242\t7\t7\nGid:\t7\t4243\t7\t7\nGroups:\t4 5 \n",
            ),
            ("etc/passwd", "root:x:0:0::/:/bin/sh\nann:x:4242:4243::/:/bin/sh\n"),
            ("dev/dri/renderD128", ""),
            ("dev/dri/card0", ""),
        ]);
        let scene = Scene::new(&[], &options);
        let account = Account::read(&scene).expect("a status");
        assert_eq!((account.uid, account.groups.as_slice()), (4242, &[4, 5, 4243][..]));
        assert_eq!((account.name.as_deref(), account.in_container), (Some("ann"), false));
        let node = root.path().join("dev/dri/renderD128");
        let close = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&node, mode).expect("ours");
        };
        close(0o600);
        let found = check(&scene);
        assert!(found.len() == 1 && found[0].subject == "/dev/dri/renderD128", "{found:#?}");
        close(0o666);
        assert_eq!(check(&scene), []);
    }
}
