// The API's types, as far as the console reads them. They are package carrel's.

export interface Self { name: string; person?: string; project?: string; role: string; expires?: string;
  projects?: { project: string; role: string }[] }
export interface Limits { cpus?: number; memoryMB?: number; diskMB?: number; pids?: number }
export interface Rule { name?: string; allow?: string[]; deny?: string[]; ask?: string[]; ports?: string[]; protocol?: string;
  methods?: string[]; paths?: string[]; inspect?: boolean; [other: string]: unknown }
export interface Policy { presets?: string[]; default?: string; rules?: Rule[]; [other: string]: unknown }
export interface Network { policy?: Policy; internet: boolean; allowOut?: string[]; denyOut?: string[]; privateTraffic?: boolean;
  [other: string]: unknown }
export interface Lifecycle { onTimeout?: string; filesOnly?: boolean; autoResume?: boolean; idle?: { after?: number };
  checkpoints?: { every?: number; before?: string[]; filesOnly?: boolean }; retention?: { last?: number; for?: number } }
export interface Sandbox { id: string; name?: string; project?: string; template: string; alias?: string; tier: string; state: string;
  limits: Limits; metadata?: Record<string, string>; network: Network; started: string; ends: string; lifecycle?: Lifecycle;
  snapshot?: string; accessToken?: string; domain?: string }
export interface Happening { seq: number; time: string; type: string; id?: string; project?: string; reason?: string; message?: string;
  fields?: Record<string, string> }
export interface Decision { seq: number; time: string; id: string; project?: string; process?: string; allowed: boolean;
  protocol: string; name?: string; address?: string; port?: number; method?: string; path?: string; status?: number; rule: string;
  reason?: string; hint?: string; answer?: string; secrets?: string[]; sent?: number; received?: number; repeats?: number }
export interface Question { id: string; sandbox: string; project?: string; host: string; port: number; protocol: string;
  method?: string; path?: string; rule: string; process?: string; waiting: number; asked: string; until: string }
export interface Metric { time: string; cpuCount: number; cpuUsedPct: number; memUsed: number; memTotal: number; diskUsed: number;
  diskTotal: number; netSent: number; netReceived: number }
export interface Snapshot { id: string; sandbox: string; parent?: string; created: string; cause: string; names?: string[];
  label?: string; memory: boolean; kept?: boolean; detail?: string; tier: string; alias?: string; template: string; size: number;
  new: number; unavailable?: string }
export interface Timeline { sandbox: string; head?: string; snapshots: Snapshot[]; forks?: Record<string, string[]>; size: number }
export interface FileInfo { size?: number; mode?: number; [other: string]: unknown }
export interface FileChange { path: string; kind: string; before?: FileInfo; after?: FileInfo }
export interface ProcessRecord { serial: number; pid: number; tag?: string; args: string[]; dir?: string; started: string; ended?: string;
  exitCode: number; status?: string; written: number; kept: number }
export interface LogEntry { time: string; level: string; message: string; fields?: Record<string, string> }
export interface Template { id: string; name: string; created: string; size: number; tier?: string; source: string; builtIn?: boolean;
  standIn?: string; project?: string; public?: boolean; tag?: string; golden?: string; limits?: Limits; start?: string[] }
export interface BuildStep { name?: string; state?: string; cached?: boolean; [other: string]: unknown }
export interface Build { id: string; templateID: string; name: string; tags?: string[]; state: string; created: string; started?: string;
  ended?: string; reason?: { message?: string; step?: string }; size?: number; steps?: BuildStep[] }
export interface QuotaReport { project: string; key?: string; keyName?: string;
  limits: { name: string; hard?: number; soft?: number; used: number }[] }
