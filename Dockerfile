# Counterpoint on a CPU: docker build -t counterpoint . && docker run --rm -v "$PWD:/data" counterpoint train --data /data/photos --out /data/runs/photos
FROM python:3.12-slim

WORKDIR /counterpoint
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[vision,search]' && useradd --create-home user

USER user
WORKDIR /data
ENTRYPOINT ["counterpoint"]
CMD ["--help"]
