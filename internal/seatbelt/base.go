package seatbelt

// base writes the rules for what every program needs and what does no harm. The lists follow those
// that Chromium, Codex and sandbox-runtime publish for this purpose. Unlike them it does not allow:
// the keychain's services (com.apple.SecurityServer, com.apple.securityd.xpc), launch services
// (which start programs outside), fonts and sound, any POSIX shared memory, properties of devices,
// and control of terminals.
func (w *writer) base() {
	w.text.WriteString(baseText)
}

const baseText = `(version 1)
(deny default)

; processes: children have the same box, and only what is in it is signalled or looked at
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow mach-priv-task-port (target same-sandbox))

; what the machine is like
(allow user-preference-read)
(allow mach-host*)
(allow sysctl-read
  (sysctl-name "hw.activecpu")
  (sysctl-name "hw.busfrequency_compat")
  (sysctl-name "hw.byteorder")
  (sysctl-name "hw.cacheconfig")
  (sysctl-name "hw.cachelinesize")
  (sysctl-name "hw.cachelinesize_compat")
  (sysctl-name "hw.cpufamily")
  (sysctl-name "hw.cpufrequency")
  (sysctl-name "hw.cpufrequency_compat")
  (sysctl-name "hw.cpusubtype")
  (sysctl-name "hw.cputype")
  (sysctl-name "hw.l1dcachesize_compat")
  (sysctl-name "hw.l1icachesize_compat")
  (sysctl-name "hw.l2cachesize_compat")
  (sysctl-name "hw.l3cachesize_compat")
  (sysctl-name "hw.logicalcpu")
  (sysctl-name "hw.logicalcpu_max")
  (sysctl-name "hw.machine")
  (sysctl-name "hw.memsize")
  (sysctl-name "hw.model")
  (sysctl-name "hw.ncpu")
  (sysctl-name "hw.nperflevels")
  (sysctl-name "hw.packages")
  (sysctl-name "hw.pagesize")
  (sysctl-name "hw.pagesize_compat")
  (sysctl-name "hw.physicalcpu")
  (sysctl-name "hw.physicalcpu_max")
  (sysctl-name "hw.tbfrequency_compat")
  (sysctl-name "hw.vectorunit")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.maxfiles")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.ngroups")
  (sysctl-name "kern.osproductversion")
  (sysctl-name "kern.osrelease")
  (sysctl-name "kern.ostype")
  (sysctl-name "kern.osvariant_status")
  (sysctl-name "kern.osversion")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "machdep.ptrauth_enabled")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "vm.loadavg")
  (sysctl-name-prefix "hw.optional.")
  (sysctl-name-prefix "hw.perflevel")
  (sysctl-name-prefix "kern.proc.pgrp.")
  (sysctl-name-prefix "kern.proc.pid.")
  (sysctl-name-prefix "machdep.cpu.")
  (sysctl-name-prefix "net.routetable."))
(allow sysctl-write
  (sysctl-name "kern.grade_cputype"))
(allow iokit-open
  (iokit-registry-entry-class "RootDomainUserClient"))

; services: who am I, where is my temporary directory, logging
(allow mach-lookup
  (global-name "com.apple.bsd.dirhelper")
  (global-name "com.apple.logd")
  (global-name "com.apple.PowerManagement.control")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership"))

; semaphores and shared memory as Python's multiprocessing makes them
(allow ipc-posix-sem)
(allow ipc-posix-shm
  (ipc-posix-name-regex "^/psm_"))
(allow ipc-posix-shm-read-data
  (ipc-posix-name "apple.shm.notification_center"))
`

// devices come after the rules about reading and writing: in /dev only these are open. Otherwise
// the box could read and write another terminal of the same user, and as root a disk. A terminal
// that is made inside carries an extension.
const devices = `
; devices
(deny file-read-data file-write* file-ioctl
  (subpath "/dev"))
(allow file-read-data
  (literal "/dev")
  (literal "/dev/autofs_nowait")
  (literal "/dev/random")
  (literal "/dev/urandom"))
(allow file-read-data file-write-data file-ioctl
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/dtracehelper")
  (literal "/dev/ptmx"))
(allow file-read-data file-write-data
  (subpath "/dev/fd"))
(allow file-read-metadata
  (subpath "/dev"))
(allow pseudo-tty)
(allow file-read-data file-write* file-ioctl
  (require-all (regex "^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))
`

// terminal opens the box's own terminal.
func (w *writer) terminal() {
	if t := w.options.Terminal; t != "" {
		w.comment("the box's own terminal")
		w.rule("allow", "file-read-data file-write* file-ioctl", w.literal(t), w.literal("/dev/tty"))
	}
}
