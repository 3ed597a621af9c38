# The orchestrator: `vigil serve` and the other commands, without any engine.
FROM python:3.11-slim

# Voices: of sessions that ask for audio (`--voice-bridge auto`), and stand-ins for others.
RUN apt-get update \
    && apt-get install -y --no-install-recommends flite espeak-ng \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY requirements/traces.txt requirements/traces.txt
RUN pip install --no-cache-dir -r requirements/traces.txt
COPY pyproject.toml README.md ./
COPY orchestrator orchestrator
COPY memory memory
COPY bridges bridges
COPY engine_launch engine_launch
COPY prompts prompts
COPY evals evals
RUN pip install --no-cache-dir --no-deps -e . \
    && useradd --create-home --uid 1000 vigil \
    && mkdir /data && chown vigil /data

USER vigil
ENV VIGIL_DATA=/data
VOLUME /data
EXPOSE 8070
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8070/health', timeout=4)"]
CMD ["vigil", "serve"]
