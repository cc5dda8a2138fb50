{{/*
What every pod has. Called with (dict "root" $ "component" "worker" "resources" ...) and, where a component has them:
"secrets" (setting to {name, key}), "policy" (true: it reads the policy), "file" ({name, key} of a Secret to mount),
"annotations", "claimed" (true: its data is on a claimed volume), "dataLimit" (size of its data otherwise).
*/}}

{{- define "streamproc.podMetadata" -}}
labels:
  {{- include "streamproc.podLabels" . | nindent 2 }}
{{- $annotations := dict }}
{{- if .policy }}
{{- $annotations = set $annotations "checksum/policy" (.root.Values.policy | toJson | sha256sum) }}
{{- end }}
{{- if and .root.Values.metrics.annotations (ne .component "topics") }}
{{- $annotations = merge $annotations (dict "prometheus.io/scrape" "true" "prometheus.io/port" "9464" "prometheus.io/path" "/metrics") }}
{{- end }}
{{- with merge $annotations (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "streamproc.podSpec" -}}
serviceAccountName: {{ include "streamproc.fullname" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "streamproc.container" -}}
image: {{ include "streamproc.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  privileged: false
  capabilities: {drop: [ALL]}
resources:
  {{- toYaml .resources | nindent 2 }}
{{- end }}

{{/*
A worker is alive while its loop answers, also while Kafka is away. So the start is watched by /healthz, too: a pod that
waits for a broker, or that reads a long changelog, is not restarted.
*/}}
{{- define "streamproc.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{- define "streamproc.env" -}}
- {name: HOME, value: /var/lib/streamproc}
{{- if ne .component "topics" }}
- {name: STREAMPROC_METRICS, value: "0.0.0.0:9464"}
{{- end }}
- {name: STREAMPROC_DATADIR, value: /var/lib/streamproc}
{{- if .policy }}
- name: STREAMPROC_POLICY
  value: {{ include "streamproc.policy" .root | quote }}
{{- end }}
{{- range $name, $value := .root.Values.settings }}
- name: STREAMPROC_{{ upper $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- if .root.Values.kafka.tlsSecret }}
- {name: STREAMPROC_SSL_CAFILE, value: /etc/streamproc/tls/ca.crt}
{{- if .root.Values.kafka.clientCertificate }}
- {name: STREAMPROC_SSL_CERTFILE, value: /etc/streamproc/tls/tls.crt}
- {name: STREAMPROC_SSL_KEYFILE, value: /etc/streamproc/tls/tls.key}
{{- end }}
{{- end }}
{{- if .root.Values.kafka.tokenAudience }}
- {name: STREAMPROC_SASL_TOKEN_FILE, value: /etc/streamproc/token/kafka}
{{- end }}
{{- range $name, $ref := merge (dict) (.secrets | default dict) .root.Values.kafka.secrets }}
- name: STREAMPROC_{{ upper $name }}
  valueFrom:
    secretKeyRef: {name: {{ $ref.name | quote }}, key: {{ $ref.key | quote }}}
{{- end }}
{{- end }}

{{- define "streamproc.policy" -}}
{{- hasKey .Values.policy.files .Values.policy.name | ternary "/etc/streamproc/policy/" "" }}{{ .Values.policy.name }}
{{- end }}

{{- define "streamproc.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: data, mountPath: /var/lib/streamproc}
{{- if and .policy .root.Values.policy.files }}
- {name: policy, mountPath: /etc/streamproc/policy, readOnly: true}
{{- end }}
{{- if .root.Values.kafka.tlsSecret }}
- {name: tls, mountPath: /etc/streamproc/tls, readOnly: true}
{{- end }}
{{- if .root.Values.kafka.tokenAudience }}
- {name: token, mountPath: /etc/streamproc/token, readOnly: true}
{{- end }}
{{- if .file }}
- {name: secret-file, mountPath: /etc/streamproc/secret, readOnly: true}
{{- end }}
{{- end }}

{{- define "streamproc.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- if not .claimed }}
- name: data
  emptyDir: {sizeLimit: {{ .dataLimit | default "256Mi" }}}
{{- end }}
{{- if and .policy .root.Values.policy.files }}
- name: policy
  configMap: {name: {{ include "streamproc.name" .root }}-policy}
{{- end }}
{{- with .root.Values.kafka.tlsSecret }}
- name: tls
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with .root.Values.kafka.tokenAudience }}
- name: token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {audience: {{ . | quote }}, expirationSeconds: 3600, path: kafka}
{{- end }}
{{- with .file }}
- name: secret-file
  secret: {secretName: {{ .name | quote }}, defaultMode: 0440, items: [{key: {{ .key | quote }}, path: {{ .key | quote }}}]}
{{- end }}
{{- end }}

{{/* Zones first, then nodes; a cluster with one of either still runs all pods. */}}
{{- define "streamproc.spread" -}}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "streamproc.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
