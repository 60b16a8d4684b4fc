//! Erasing what tells a disk's former use: both ends of the disk and of each partition.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, major, minor};
use zfs::Device;

/// ZFS has two labels of 256 KiB at each end of a member (OpenZFS' include/sys/vdev_impl.h); GPT, LVM, md, swap and
/// file systems have theirs within the first MiB or the last; VMFS at 2 MiB.
const END: u64 = 4 << 20;
const SECTOR: u64 = 512;

/// A disk that nothing else can mount, import or map while this lives.
pub(crate) struct Exclusive {
    file: File,
}

impl Exclusive {
    /// # Errors
    /// Somebody uses the disk or a partition of it, or the name stands for another device than it did.
    pub(crate) fn open(path: &Path, device: &Device) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::EXCL.bits().cast_signed())
            .open(path)?;
        let number = file.metadata()?.rdev();
        let number = format!("{}:{}", major(number), minor(number));
        if number != device.device_number {
            let why = format!("it was device {} and is {number} now", device.device_number);
            return Err(io::Error::other(why));
        }
        Ok(Self { file })
    }

    /// Partitions first: while their table is there, a run that was killed finds them again.
    pub(crate) fn erase(&self, disk: &Device) -> io::Result<()> {
        let zeros = vec![0; usize::try_from(END).unwrap_or_default()];
        for (start, length) in regions(disk) {
            let length = usize::try_from(length).unwrap_or(zeros.len());
            self.file.write_all_at(&zeros[..length], start)?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

/// Offset and length, none longer than [`END`].
fn regions(disk: &Device) -> Vec<(u64, u64)> {
    let partitions = disk.children.iter().filter(|child| child.kind == "part");
    let partitions = partitions.filter_map(|part| Some((part.start? * SECTOR, part.size)));
    partitions
        .chain([(0, disk.size)])
        .flat_map(|(start, size)| {
            let length = END.min(size);
            [(start, length), (start + size - length, length)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_every_partition_and_then_of_the_disk() {
        let part =
            |start, size| Device { kind: "part".into(), start: Some(start), size, ..Device::default() };
        let disk = Device {
            kind: "disk".into(),
            size: 100 << 20,
            children: vec![part(2048, 80 << 20), part(170_000, 1 << 20)],
            ..Device::default()
        };
        let mib = 1 << 20;
        assert_eq!(
            regions(&disk),
            [
                (mib, 4 * mib),
                (77 * mib, 4 * mib),
                (170_000 * 512, mib),
                (170_000 * 512, mib),
                (0, 4 * mib),
                (96 * mib, 4 * mib)
            ]
        );
    }
}
