{{/* What no schema can say, because it depends on several values. Every fault is named, with its remedy. */}}
{{- define "streamproc.checks" -}}
{{- $v := .Values -}}
{{- $faults := list -}}
{{- $partitions := int $v.settings.partitions -}}
{{- if not $v.settings.brokers }}
  {{- $faults = append $faults "settings.brokers is empty: set Kafka's bootstrap servers, such as kafka.kafka.svc:9092" }}
{{- end }}
{{- range splitList "," $v.settings.brokers }}
  {{- if and (trim .) (not (regexMatch ":[0-9]+$" (trim .))) }}
    {{- $faults = append $faults (printf "settings.brokers: %s has no port: write host:port, which the network policy opens" (trim .)) }}
  {{- end }}
{{- end }}
{{- if and (not $v.keda.enabled) (gt (int $v.worker.replicas) $partitions) }}
  {{- $faults = append $faults (printf "worker.replicas is %d, and settings.partitions %d: further workers would have no partition; lower it" (int $v.worker.replicas) $partitions) }}
{{- end }}
{{- if $v.keda.enabled }}
  {{- if gt (int $v.keda.maxReplicaCount) $partitions }}
    {{- $faults = append $faults (printf "keda.maxReplicaCount is %d, and settings.partitions %d: further workers would have no partition; lower it" (int $v.keda.maxReplicaCount) $partitions) }}
  {{- end }}
  {{- range $name := list "minReplicaCount" "fallbackReplicas" }}
    {{- if gt (int (index $v.keda $name)) (int $v.keda.maxReplicaCount) }}
      {{- $faults = append $faults (printf "keda.%s is %d, more than keda.maxReplicaCount (%d): lower it, or raise the maximum" $name (int (index $v.keda $name)) (int $v.keda.maxReplicaCount)) }}
    {{- end }}
  {{- end }}
  {{- if and (ne $v.settings.security_protocol "PLAINTEXT") (not $v.keda.authenticationRef) }}
    {{- $faults = append $faults (printf "keda.authenticationRef is empty, and settings.security_protocol %s: name a TriggerAuthentication with which KEDA logs in to Kafka" $v.settings.security_protocol) }}
  {{- end }}
{{- end }}
{{- if contains "SASL" $v.settings.security_protocol }}
  {{- $oauth := eq (default "PLAIN" $v.settings.sasl_mechanism) "OAUTHBEARER" }}
  {{- if and (not $oauth) (not (and $v.settings.sasl_username (hasKey $v.kafka.secrets "sasl_password"))) }}
    {{- $faults = append $faults (printf "settings.security_protocol is %s: set settings.sasl_username and kafka.secrets.sasl_password" $v.settings.security_protocol) }}
  {{- end }}
  {{- if and $oauth (not $v.kafka.tokenAudience) (not (and $v.settings.sasl_oauth_token_url (hasKey $v.kafka.secrets "sasl_oauth_client_secret"))) }}
    {{- $faults = append $faults "settings.sasl_mechanism is OAUTHBEARER: set kafka.tokenAudience, or settings.sasl_oauth_token_url, settings.sasl_oauth_client_id and kafka.secrets.sasl_oauth_client_secret" }}
  {{- end }}
{{- end }}
{{- if and $v.kafka.clientCertificate (not $v.kafka.tlsSecret) }}
  {{- $faults = append $faults "kafka.clientCertificate is on: name the Secret with tls.crt and tls.key in kafka.tlsSecret" }}
{{- end }}
{{- if and (regexMatch "[./]" $v.policy.name) (not (hasKey $v.policy.files $v.policy.name)) }}
  {{- $faults = append $faults (printf "policy.name is %s, which is no preset and not among policy.files: add its text there" $v.policy.name) }}
{{- end }}
{{- if and $v.notify.enabled (not (hasKey $v.notify.secrets "notify")) (not $v.notify.fileSecret.name) }}
  {{- $faults = append $faults "notify.enabled is on, and no destination is given: name a Secret in notify.secrets.notify or notify.fileSecret" }}
{{- end }}
{{- if $v.page.enabled }}
  {{- if not $v.page.publicUrl }}
    {{- $faults = append $faults "page.publicUrl is empty: set the address under which browsers reach the page, such as https://ops.example.com" }}
  {{- end }}
  {{- if and (not $v.page.usersSecret.name) (not $v.page.args) }}
    {{- $faults = append $faults "page.enabled is on, and people could not log in: set page.usersSecret, or the options of another way in page.args, such as --oidc-issuer" }}
  {{- end }}
  {{- if and (or $v.page.commands $v.page.orders) (not (hasKey $v.page.secrets "command_key")) }}
    {{- $faults = append $faults "page.commands is on: name the Secret with the page's key in page.secrets.command_key (`streamproc keys new page`)" }}
  {{- end }}
{{- end }}
{{- if $faults }}
{{- fail (printf "\n\n%s\n" (join "\n" $faults)) }}
{{- end }}
{{- end }}
