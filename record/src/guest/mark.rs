//! Records a freeze for the case that recorder and guardian are both killed. Each recorder of a guest has a file under
//! `/run`.
//!
//! The file's first page is the one that recorder and guardian share, so it always shows whether the guest is frozen.
//! The guest's name follows. Both processes keep the file locked, and the one that ends last removes it. So an unlocked
//! file was left by a recorder and a guardian that were killed together, and shows the state in which they left their
//! guest. Like everything in `/run`, it is gone after a reboot.

use crate::sys::clock::monotonic_ns;
use crate::sys::guardian_process::{PAGE_BYTES, SHARED_WORDS, hold};
use nix::unistd::geteuid;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Offset of the guest's name, which ends with a line feed.
const TEXT_AT: usize = SHARED_WORDS * 8;

/// Index of the word that holds the state.
pub(crate) const STATE: usize = 0;
/// Index of the word with the number of the guest, if it is not the one at the start; otherwise 0.
pub(crate) const GUEST: usize = 2;

/// Low bits of the state; the rest is the number of the freeze.
pub(crate) const RUNNING: u64 = 0;
pub(crate) const FROZEN: u64 = 1;
pub(crate) const RESUMING: u64 = 2;
pub(crate) const RESCUED: u64 = 3;
/// A state of its own: nothing is left to do, whatever happens to the recorder.
pub(crate) const DISMISSED: u64 = u64::MAX;

/// Whether a shared word was left in the middle of a freeze.
pub(crate) fn is_amid_freeze(state: u64) -> bool {
    state != DISMISSED && matches!(state & 3, FROZEN | RESUMING)
}

/// A recorder's own mark.
#[derive(Debug)]
pub struct Mark {
    path: PathBuf,
    file: File,
}

impl Mark {
    /// Creates a mark for `guest`; `None` if no folder for it can be used.
    pub fn leave(guest: &str) -> Option<Mark> {
        Mark::leave_in(&folder()?, guest)
    }

    fn leave_in(folder: &Path, guest: &str) -> Option<Mark> {
        let _ = DirBuilder::new().mode(0o700).create(folder);
        if !is_ours(&std::fs::symlink_metadata(folder).ok()?) || guest.contains('\n') {
            return None;
        }
        let text = format!("{guest}\n");
        let path = folder.join(format!("{}-{}", std::process::id(), monotonic_ns()));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).ok()?;
        let mark = Mark { path, file };
        let mut page = vec![0; PAGE_BYTES];
        page.get_mut(TEXT_AT..TEXT_AT + text.len())?
            .copy_from_slice(text.as_bytes());
        (hold(&mark.file) && (&mark.file).write_all(&page).is_ok()).then_some(mark)
    }

    /// The file, whose first page is shared.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Removes the mark, as the guest can't be left paused any more.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The mark of a recorder and a guardian that were killed in the middle of a freeze.
#[derive(Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// The guest, as its [`crate::guest::guardian::Rescuer`] named it.
    pub guest: String,
    path: PathBuf,
}

impl Abandoned {
    /// Reads all marks. Marks of guests that were not frozen are removed.
    pub fn all() -> Vec<Abandoned> {
        folder().map_or_else(Vec::new, |folder| Abandoned::all_in(&folder))
    }

    fn all_in(folder: &Path) -> Vec<Abandoned> {
        let is_safe = std::fs::symlink_metadata(folder).is_ok_and(|found| is_ours(&found));
        let entries = std::fs::read_dir(folder).ok().filter(|_| is_safe);
        let entries = entries.into_iter().flatten().flatten();
        let all = entries.filter_map(|entry| Abandoned::at(entry.path()));
        all.collect()
    }

    fn at(path: PathBuf) -> Option<Abandoned> {
        let mut options = OpenOptions::new();
        let options = options.read(true);
        let options = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || !is_ours(&found) || !hold(&file) {
            return None; // its recorder or guardian is still there
        }
        match read(&file) {
            Some(guest) => Some(Abandoned { guest, path }),
            None => {
                let _ = std::fs::remove_file(path);
                None
            }
        }
    }

    /// The mark's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the mark. Must be called when the guest runs, or is gone.
    pub fn settle(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The guest of a mark, if it was left frozen.
fn read(mut file: &File) -> Option<String> {
    let mut page = [0; PAGE_BYTES];
    file.read_exact(&mut page).ok()?;
    let (words, text) = page.split_at(TEXT_AT);
    let (words, _) = words.as_chunks();
    let word = |index: usize| words.get(index).copied().map(u64::from_ne_bytes);
    let guest = text.split(|byte| *byte == b'\n').next()?;
    let guest = str::from_utf8(guest).ok()?;
    let guest = match (word(GUEST)?, guest.rsplit_once(' ')) {
        (1.., Some((kind, _))) => format!("{kind} {}", word(GUEST)?),
        _ => guest.to_owned(),
    };
    is_amid_freeze(word(STATE)?).then_some(guest)
}

/// The folder of marks: root's, or that of a user who has a runtime folder.
fn folder() -> Option<PathBuf> {
    let of_user = || std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let run = if geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        of_user().filter(|path| path.is_absolute())?
    };
    Some(run.join("uniprof"))
}

/// Whether no other user can have written it.
fn is_ours(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::guardian_process::SharedWords;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::Ordering;

    /// A mark of a recorder with these words.
    fn left(folder: &Path, state: u64, guest: u64) -> Mark {
        let mark = Mark::leave_in(folder, "xen 7").unwrap();
        let words = SharedWords::new(Some(mark.file())).unwrap();
        words.word(STATE).store(state, Ordering::SeqCst);
        words.word(GUEST).store(guest, Ordering::SeqCst);
        mark
    }

    /// Unlocks the mark, as if its holders were killed.
    fn abandon(mark: Mark) {
        let mark = std::mem::ManuallyDrop::new(mark);
        nix::unistd::close(mark.file.as_raw_fd()).unwrap();
        // Children that other tests fork hold a copy until they execute another program.
        let is_free = || hold(&File::open(&mark.path).unwrap());
        while !is_free() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn only_a_freeze_that_nobody_holds_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("uniprof");
        assert_eq!(Abandoned::all_in(&folder), []);
        let alive = left(&folder, 1 << 2 | 1, 9);
        assert_eq!(Abandoned::all_in(&folder), []);
        abandon(left(&folder, 0, 0));
        abandon(left(&folder, u64::MAX, 9));
        assert_eq!(Abandoned::all_in(&folder), []);
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            1,
            "stale ones go"
        );
        abandon(alive);
        let [found] = &Abandoned::all_in(&folder)[..] else {
            panic!("not one")
        };
        assert_eq!(found.guest, "xen 9");
        found.settle();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    /// Other files of this user in the folder, whatever bytes they hold, are not taken for a guest.
    #[test]
    fn what_lies_beside_marks_names_no_guest_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let put = |name: &str, bytes: &[u8]| {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(folder.join(name))
                .unwrap();
            file.write_all(bytes).unwrap();
        };
        let mut page = vec![0; PAGE_BYTES];
        page[..8].copy_from_slice(&(1_u64 << 2 | FROZEN).to_ne_bytes());
        let with = |text: &[u8]| {
            let mut page = page.clone();
            page[TEXT_AT..TEXT_AT + text.len()].copy_from_slice(text);
            page
        };
        put("short", &with(b"xen 7\n")[..PAGE_BYTES - 1]);
        put("no text at all", &[0xff; PAGE_BYTES]);
        put("no UTF-8", &with(b"xen \xff\n"));
        std::fs::create_dir(folder.join("folder")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
        nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(Abandoned::all_in(folder), []);
        put("mark", &with(b"xen 7\n"));
        assert_eq!(Abandoned::all_in(folder)[0].guest, "xen 7");
        let mut random = fastrand::Rng::with_seed(31);
        for _ in 0..2_000 {
            let text: Vec<u8> = (0..random.usize(..64)).map(|_| random.u8(..)).collect();
            let mut page = with(&text);
            page[STATE * 8..][..8].copy_from_slice(&random.u64(..).to_ne_bytes());
            page[GUEST * 8..][..8].copy_from_slice(&random.u64(..3).to_ne_bytes());
            put("mark", &page);
            // At most a page of zeros follows a name without an end.
            for found in Abandoned::all_in(folder) {
                assert!(found.guest.len() <= PAGE_BYTES && !found.guest.contains('\n'));
            }
        }
    }

    /// All else is read-only there.
    #[test]
    fn a_recorder_may_leave_its_mark_under_the_packaged_unit() {
        let unit = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../packaging/uniprof-record@.service"
        );
        let unit = std::fs::read_to_string(unit).unwrap();
        let has = |line| unit.lines().any(|one| one == line);
        assert!(has("ProtectSystem=strict") && has("RuntimeDirectory=uniprof"));
        // Other recorders are at work when this one ends.
        assert!(has("RuntimeDirectoryMode=0700") && has("RuntimeDirectoryPreserve=yes"));
    }

    #[test]
    fn a_folder_that_others_can_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        abandon(left(folder.path(), 1 << 2 | 1, 0));
        let found = Abandoned::all_in(folder.path());
        assert_eq!(found[0].guest, "xen 7");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        assert_eq!(Abandoned::all_in(folder.path()), []);
        assert!(Mark::leave_in(folder.path(), "xen 8").is_none());
    }
}
