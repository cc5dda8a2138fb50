{{/* Names. A component's template is called with (dict "root" $ "component" "worker"). */}}

{{- define "streamproc.name" -}}
{{- $default := .Release.Name -}}
{{- if not (contains "streamproc" .Release.Name) }}{{ $default = printf "%s-streamproc" .Release.Name }}{{ end -}}
{{- default $default .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "streamproc.fullname" -}}
{{ include "streamproc.name" .root }}-{{ .component }}
{{- end }}

{{- define "streamproc.selector" -}}
app.kubernetes.io/name: streamproc
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "streamproc.podLabels" -}}
{{ include "streamproc.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "streamproc.labels" -}}
{{ include "streamproc.podLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "streamproc.metadata" -}}
name: {{ include "streamproc.fullname" . }}
labels:
  {{- include "streamproc.labels" . | nindent 2 }}
{{- end }}

{{- define "streamproc.group" -}}
{{ default (printf "%s-worker" .Values.settings.topic_prefix) .Values.settings.group }}
{{- end }}

{{- define "streamproc.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{/* Ports of Kafka, for the network policies: those of the bootstrap servers, and `kafkaPorts`. */}}
{{- define "streamproc.kafkaPorts" -}}
{{- $ports := list -}}
{{- range splitList "," .Values.settings.brokers }}
  {{- with regexFind ":[0-9]+$" (trim .) }}{{ $ports = append $ports (trimPrefix ":" . | int) }}{{ end }}
{{- end }}
{{- range .Values.networkPolicy.kafkaPorts }}{{ $ports = append $ports (int .) }}{{ end -}}
{{ uniq $ports | toJson }}
{{- end }}
