//! Reads the settings of the node itself, each fact by itself.

use probes::node::Fact;

use super::{Found, Request, each_part};
use crate::sysfs::{Dir, ReadError, host::Roots};

type Reader = fn(&Roots) -> Result<Fact, ReadError>;

/// The facts by name, which is the part that a problem with one of their files is about.
const FACTS: &[(&str, Reader)] = &[
    ("about", |roots| roots.about().map(Fact::About)),
    ("command_line", |roots| roots.command_line().map(Fact::CommandLine)),
    ("numa", |roots| roots.numa().map(Fact::Numa)),
    ("iommu", |roots| roots.iommu().map(Fact::Iommu)),
    ("modules", |roots| roots.modules().map(Fact::Modules)),
    ("locked_memory", |roots| roots.locked_memory().map(Fact::LockedMemory)),
    ("access", |roots| roots.access().map(Fact::Access)),
    ("governors", |roots| roots.governors().map(Fact::Governors)),
    ("huge_pages", |roots| roots.huge_pages().map(Fact::HugePages)),
    ("selinux", |roots| roots.selinux().map(Fact::Selinux)),
    ("clock", |roots| roots.clock().map(Fact::Clock)),
    ("bars", |roots| roots.bars().map(Fact::Bars)),
];

pub(crate) fn read(request: &Request) -> Found<Fact> {
    let paths = request.roots.clone();
    let names = FACTS.iter().map(|(name, _)| (*name).to_string()).collect();
    let (facts, problems) = each_part(names, move |name, progress| {
        let dir = |path| Dir::at(path, progress.clone());
        let roots = Roots { sysfs: dir(&paths.sysfs), proc: dir(&paths.proc), etc: dir(&paths.etc) };
        FACTS.iter().find(|(fact, _)| *fact == name).map(|(_, read)| read(&roots)).transpose()
    });
    (facts.into_iter().flatten().collect(), problems)
}

#[cfg(test)]
mod tests;
