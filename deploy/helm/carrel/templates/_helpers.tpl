{{- define "carrel.labels" -}}
app.kubernetes.io/name: carrel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "carrel.secret" -}}
{{ .Values.secret.existing | default (printf "%s-settings" .Release.Name) }}
{{- end }}

{{- define "carrel.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "carrel.joinURL" -}}
{{ .Values.front.joinURL | default (printf "https://%s-front.%s.svc:%v" .Release.Name .Release.Namespace .Values.front.nodesPort) }}
{{- end }}

{{- define "carrel.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* What a pod with sandboxes is allowed. docs/cluster.md says what each line is for. */ -}}
{{- define "carrel.podSettings" -}}
automountServiceAccountToken: false
enableServiceLinks: false
hostUsers: {{ .Values.pod.hostUsers }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.pod.runAsUser }}
  runAsGroup: {{ .Values.pod.runAsUser }}
  fsGroup: {{ .Values.pod.runAsUser }}
  fsGroupChangePolicy: OnRootMismatch
{{- end }}

{{- define "carrel.containerSettings" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  procMount: {{ .Values.pod.procMount }}
  seccompProfile: {{ toJson .Values.pod.seccompProfile }}
  {{- with .Values.pod.appArmorProfile }}
  appArmorProfile: {{ toJson . }}
  {{- end }}
{{- end }}

{{- /* The daemon's directory is its own, so it is below the volume, whose directory is root's. */ -}}
{{- define "carrel.dataVariables" -}}
- {name: CARREL_DATA_DIR, value: /var/lib/carrel/data}
- {name: CARREL_CACHE_DIR, value: /var/cache/carrel/cache}
- {name: HOME, value: /tmp}
{{- end }}

{{- define "carrel.storeVariables" -}}
envFrom:
  - secretRef: {name: {{ include "carrel.secret" . }}-store, optional: true}
{{- end }}

{{- define "carrel.claimSpec" -}}
accessModes: [ReadWriteOnce]
resources: {requests: {storage: {{ .size }}}}
{{- with .storageClassName }}
storageClassName: {{ . }}
{{- end }}
{{- end }}
