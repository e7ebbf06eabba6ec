//! The checks of the Pod Security Standards of 1.34 (`k8s.io/pod-security-admission`) in CEL.

/// A check of a level.
pub(crate) struct Check {
    /// The name by which the check can be excluded.
    pub(crate) control: &'static str,
    pub(crate) is_restricted: bool,
    /// CEL for the Pods to which the check does not apply.
    pub(crate) unless: Option<&'static str>,
    pub(crate) message: &'static str,
    pub(crate) fields: &'static [CheckedField],
}

/// A field that a check reads. In its CEL, `$` is the spec of the Pod and `#` its metadata.
pub(crate) struct CheckedField {
    pub(crate) place: Where,
    /// The path below the spec of the Pod, a container, or the list.
    pub(crate) path: &'static str,
    /// CEL for whether the value is forbidden.
    pub(crate) bad: &'static str,
    /// CEL for the forbidden values as strings.
    pub(crate) values: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Where {
    Pod,
    /// Each container is `c`.
    Containers,
    /// Each container is `c`. The CEL tells whether a container without the field fails.
    ContainersOrPod(&'static str),
    /// Each item of this list is `i`.
    Items(&'static str),
}

use Where::{Containers, ContainersOrPod, Items, Pod};

pub(crate) const CHECKS: [Check; 18] = [
    Check::baseline(
        "Host Namespaces",
        "host namespaces",
        &[
            CheckedField::new(Pod, "hostNetwork", "$.?hostNetwork.orValue(false)", "['true']"),
            CheckedField::new(Pod, "hostPID", "$.?hostPID.orValue(false)", "['true']"),
            CheckedField::new(Pod, "hostIPC", "$.?hostIPC.orValue(false)", "['true']"),
        ],
    ),
    Check::baseline(
        "Privileged Containers",
        "privileged containers",
        &[CheckedField::new(
            Containers,
            "securityContext.privileged",
            "c.?securityContext.?privileged.orValue(false)",
            "['true']",
        )],
    ),
    Check::baseline(
        "Capabilities",
        "capabilities that are not among the default ones",
        &[CheckedField::new(
            Containers,
            "securityContext.capabilities.add",
            "c.?securityContext.?capabilities.?add.orValue([]).exists(v, !(v in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', \
         'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', \
         'SYS_CHROOT']))",
            "c.securityContext.capabilities.add.filter(v, !(v in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', \
         'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT']))",
        )],
    ),
    Check::baseline(
        "HostPath Volumes",
        "hostPath volumes",
        &[CheckedField::new(
            Items("$.?volumes.orValue([])"),
            "volumes[*].hostPath",
            "has(i.hostPath)",
            "[i.hostPath.?path.orValue('')]",
        )],
    ),
    Check::baseline(
        "Host Ports",
        "host ports",
        &[CheckedField::new(
            Containers,
            "ports[*].hostPort",
            "c.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0)",
            "c.ports.filter(p, p.?hostPort.orValue(0) != 0).map(p, string(p.hostPort))",
        )],
    ),
    Check::baseline(
        "",
        "hosts in probes and lifecycle handlers",
        &[CheckedField::new(
            Containers,
            "",
            "[c.?livenessProbe, c.?readinessProbe, c.?startupProbe, c.?lifecycle.?postStart, \
         c.?lifecycle.?preStop].exists(h, h.?httpGet.?host.orValue('') != '' || h.?tcpSocket.?host.orValue('') != '')",
            "[]",
        )],
    ),
    Check::baseline(
        "AppArmor",
        "AppArmor profiles",
        &[
            CheckedField::new(
                Pod,
                "securityContext.appArmorProfile.type",
                "!$.?securityContext.?appArmorProfile.optMap(p, p.?type.orValue('') in ['RuntimeDefault', \
             'Localhost']).orValue(true)",
                "[$.securityContext.appArmorProfile.?type.orValue('')]",
            ),
            CheckedField::new(
                Containers,
                "securityContext.appArmorProfile.type",
                "!c.?securityContext.?appArmorProfile.optMap(p, p.?type.orValue('') in ['RuntimeDefault', \
             'Localhost']).orValue(true)",
                "[c.securityContext.appArmorProfile.?type.orValue('')]",
            ),
            CheckedField::new(
                Pod,
                "",
                "#.?annotations.orValue({}).exists(k, k.startsWith('container.apparmor.security.beta.kubernetes.io/') && \
             #.annotations[k] != '' && #.annotations[k] != 'runtime/default' && \
             !#.annotations[k].startsWith('localhost/'))",
                "[]",
            ),
        ],
    ),
    Check::baseline(
        "SELinux",
        "SELinux options",
        &[
            CheckedField::new(
                Pod,
                "securityContext.seLinuxOptions.type",
                "!($.?securityContext.?seLinuxOptions.?type.orValue('') in ['', 'container_t', 'container_init_t', \
             'container_kvm_t', 'container_engine_t'])",
                "[$.securityContext.seLinuxOptions.type]",
            ),
            CheckedField::new(
                Pod,
                "securityContext.seLinuxOptions.user",
                "$.?securityContext.?seLinuxOptions.?user.orValue('') != ''",
                "[$.securityContext.seLinuxOptions.user]",
            ),
            CheckedField::new(
                Pod,
                "securityContext.seLinuxOptions.role",
                "$.?securityContext.?seLinuxOptions.?role.orValue('') != ''",
                "[$.securityContext.seLinuxOptions.role]",
            ),
            CheckedField::new(
                Containers,
                "securityContext.seLinuxOptions.type",
                "!(c.?securityContext.?seLinuxOptions.?type.orValue('') in ['', 'container_t', 'container_init_t', \
             'container_kvm_t', 'container_engine_t'])",
                "[c.securityContext.seLinuxOptions.type]",
            ),
            CheckedField::new(
                Containers,
                "securityContext.seLinuxOptions.user",
                "c.?securityContext.?seLinuxOptions.?user.orValue('') != ''",
                "[c.securityContext.seLinuxOptions.user]",
            ),
            CheckedField::new(
                Containers,
                "securityContext.seLinuxOptions.role",
                "c.?securityContext.?seLinuxOptions.?role.orValue('') != ''",
                "[c.securityContext.seLinuxOptions.role]",
            ),
        ],
    ),
    Check::baseline(
        "/proc Mount Type",
        "procMount",
        &[CheckedField::new(
            Containers,
            "securityContext.procMount",
            "c.?securityContext.?procMount.orValue('Default') != 'Default'",
            "[c.securityContext.procMount]",
        )],
    ),
    Check::baseline(
        "Seccomp",
        "seccomp profiles",
        &[
            CheckedField::new(
                Pod,
                "securityContext.seccompProfile.type",
                "!$.?securityContext.?seccompProfile.optMap(p, p.?type.orValue('') in ['RuntimeDefault', \
             'Localhost']).orValue(true)",
                "[$.securityContext.seccompProfile.?type.orValue('')]",
            ),
            CheckedField::new(
                Containers,
                "securityContext.seccompProfile.type",
                "!c.?securityContext.?seccompProfile.optMap(p, p.?type.orValue('') in ['RuntimeDefault', \
             'Localhost']).orValue(true)",
                "[c.securityContext.seccompProfile.?type.orValue('')]",
            ),
        ],
    ),
    Check::baseline(
        "Sysctls",
        "sysctls",
        &[CheckedField::new(
            Items("$.?securityContext.?sysctls.orValue([])"),
            "securityContext.sysctls[*].name",
            "!(i.name in ['kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range', 'net.ipv4.tcp_syncookies', \
         'net.ipv4.ping_group_range', 'net.ipv4.ip_unprivileged_port_start', 'net.ipv4.ip_local_reserved_ports', \
         'net.ipv4.tcp_keepalive_time', 'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl', \
         'net.ipv4.tcp_keepalive_probes', 'net.ipv4.tcp_rmem', 'net.ipv4.tcp_wmem'])",
            "[i.name]",
        )],
    ),
    Check::baseline(
        "HostProcess",
        "host processes",
        &[
            CheckedField::new(
                Pod,
                "securityContext.windowsOptions.hostProcess",
                "$.?securityContext.?windowsOptions.?hostProcess.orValue(false)",
                "['true']",
            ),
            CheckedField::new(
                Containers,
                "securityContext.windowsOptions.hostProcess",
                "c.?securityContext.?windowsOptions.?hostProcess.orValue(false)",
                "['true']",
            ),
        ],
    ),
    Check::restricted(
        "Volume Types",
        None,
        "types of volumes",
        &[CheckedField::new(
            Items("$.?volumes.orValue([])"),
            ANY_VOLUME,
            "!(['configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'image', 'persistentVolumeClaim', 'projected', \
         'secret'].exists(t, t in i))",
            "[]",
        )],
    ),
    Check::restricted(
        "Privilege Escalation",
        WINDOWS,
        "allowPrivilegeEscalation, which must be false",
        &[CheckedField::new(
            Containers,
            "securityContext.allowPrivilegeEscalation",
            "c.?securityContext.?allowPrivilegeEscalation.orValue(true)",
            "(has(c.securityContext) ? [has(c.securityContext.allowPrivilegeEscalation) ? 'true' : 'nil'] : [])",
        )],
    ),
    Check::restricted(
        "Running as Non-root",
        None,
        "runAsNonRoot, which must be true",
        &[
            CheckedField::new(
                Pod,
                "securityContext.runAsNonRoot",
                "!$.?securityContext.?runAsNonRoot.orValue(true)",
                "['false']",
            ),
            CheckedField::new(
                ContainersOrPod("!$.?securityContext.?runAsNonRoot.orValue(false)"),
                "securityContext.runAsNonRoot",
                "!c.?securityContext.?runAsNonRoot.or($.?securityContext.?runAsNonRoot).orValue(false)",
                "(has(c.securityContext) && has(c.securityContext.runAsNonRoot) ? ['false'] : [])",
            ),
        ],
    ),
    Check::restricted(
        "Running as Non-root user",
        None,
        "runAsUser, which must not be 0",
        &[
            CheckedField::new(
                Pod,
                "securityContext.runAsUser",
                "$.?securityContext.?runAsUser.orValue(1) == 0",
                "['0']",
            ),
            CheckedField::new(
                Containers,
                "securityContext.runAsUser",
                "c.?securityContext.?runAsUser.orValue(1) == 0",
                "['0']",
            ),
        ],
    ),
    Check::restricted(
        "Seccomp",
        WINDOWS,
        "seccomp profiles, which must be set",
        &[
            CheckedField::new(
                Pod,
                "securityContext.seccompProfile.type",
                "!$.?securityContext.?seccompProfile.optMap(p, p.?type.orValue('') in ['RuntimeDefault', \
             'Localhost']).orValue(true)",
                "[$.securityContext.seccompProfile.?type.orValue('')]",
            ),
            CheckedField::new(
                ContainersOrPod(
                    "!($.?securityContext.?seccompProfile.?type.orValue('') in ['RuntimeDefault', 'Localhost'])",
                ),
                "securityContext.seccompProfile.type",
                "!(c.?securityContext.?seccompProfile.or($.?securityContext.?seccompProfile).?type.orValue('') in \
             ['RuntimeDefault', 'Localhost'])",
                "c.?securityContext.?seccompProfile.optMap(p, [p.?type.orValue('')]).orValue([])",
            ),
        ],
    ),
    Check::restricted(
        "Capabilities",
        WINDOWS,
        "capabilities, of which ALL must be dropped",
        &[
            CheckedField::new(
                Containers,
                "securityContext.capabilities.drop",
                "!('ALL' in c.?securityContext.?capabilities.?drop.orValue([]))",
                "c.?securityContext.?capabilities.?drop.orValue([])",
            ),
            CheckedField::new(
                Containers,
                "securityContext.capabilities.add",
                "c.?securityContext.?capabilities.?add.orValue([]).exists(v, v != 'NET_BIND_SERVICE')",
                "c.securityContext.capabilities.add.filter(v, v != 'NET_BIND_SERVICE')",
            ),
        ],
    ),
];

/// The prefix of a volume's field, whose name is the type of the volume.
pub(crate) const ANY_VOLUME: &str = "volumes[*].";

const WINDOWS: Option<&str> = Some("$.?os.?name.orValue('') == 'windows'");

// === impl Check ===

impl Check {
    const fn baseline(control: &'static str, message: &'static str, fields: &'static [CheckedField]) -> Self {
        Self {
            control,
            is_restricted: false,
            unless: None,
            message,
            fields,
        }
    }

    const fn restricted(
        control: &'static str,
        unless: Option<&'static str>,
        message: &'static str,
        fields: &'static [CheckedField],
    ) -> Self {
        Self {
            control,
            is_restricted: true,
            unless,
            message,
            fields,
        }
    }
}

// === impl CheckedField ===

impl CheckedField {
    const fn new(place: Where, path: &'static str, bad: &'static str, values: &'static str) -> Self {
        Self {
            place,
            path,
            bad,
            values,
        }
    }
}
